"""Obvents: events that are objects of a class, published and subscribed by their type.

    @dataclass
    class StockObvent(Obvent):
        company: str

    @dataclass
    class StockQuote(StockObvent):
        price: float

    async with service.subscribe(StockQuote, lambda q: q.price < 100) as quotes: ...
    await service.publish(StockQuote("Telco", 80.0))

Invariants: the notification of an obvent carries the type mark of its class and of every
ancestor up to Obvent; a subscription to a class asks for its mark and those of all its
ancestors, so that a subscription to a class covers those to its subclasses by the ordinary
algebra of filters. A type's name is given or module-qualified, the same in every process.

An object of a type that is not known here is received as one of the nearest class that is: of an
anonymous subclass of it, which keeps what the class does not know. So it is published on whole.

Source: EPFL 2503 §3.2 to §3.4 (obvents, their types, conformance).
"""

from collections.abc import Callable, Iterable
from typing import Any, Self, TypeVar, overload

from contrada.errors import InvalidObventError
from contrada.model import Filter, FilterSet, Notification
from contrada.model.rule import Rule
from contrada.service import Predicate
from contrada.typed.obvent_reader import read_obvent
from contrada.typed.obvent_type import forget_received_types, to_notification, type_of
from contrada.typed.predicate_rule import predicate_rule
from contrada.typed.type_names import names_of, register
from contrada.typed.unknown_types import is_unknown

T = TypeVar("T")


class Obvent:
    """The root of all classes whose objects are events.

    Subclasses are dataclasses, attrs classes, pydantic models, msgspec structs, or plain classes
    with annotations, whose objects come back with their fields set and no call of `__init__`.

    `class StockQuote(StockObvent, name="StockQuote")` gives the type's name; without one it is
    the module and the qualified name of the class. `earlier` are the names that it had, the oldest
    first. Raises InvalidObventError for a class in `__main__` without a name (no other process
    could know it), a name that another class has, and fields that cannot be carried (these at
    first use). Structs take no arguments there: `@obvent(name=…)` gives them theirs.

    Source: EPFL 2503 §3.2.
    """

    __slots__ = ()

    def __init_subclass__(
        cls, *, name: str | None = None, earlier: Iterable[str] = (), **options: Any
    ) -> None:
        super().__init_subclass__(**options)
        if is_unknown(cls):
            return
        # `@dataclass(slots=True)` makes the class anew, with what this class holds already.
        held = names_of(cls)
        if held and name is None:
            name, earlier = held[0], reversed(held[1:])
        register(cls, name, tuple(earlier))
        forget_received_types(cls)

    @classmethod
    def to_filters(cls) -> Filter:
        """The filter of a subscription to this type: its mark and those of all ancestors."""
        return type_of(cls).filters

    @classmethod
    def check_where(cls, where: Filter | FilterSet) -> None:
        """Raises InvalidObventError where a filter names no field of this type.

        Such a filter could match only objects of some subtype, or none: then subscribe to the
        subtype. Names that begin with `@` exist in all notifications.
        """
        type_of(cls).check_where(where)

    @classmethod
    def lift(cls, predicate: Predicate[Self]) -> Rule:
        """The filters that cover a predicate over objects of this type, with the predicate's
        residue.

        The part that the algebra cannot express is decided by the predicate itself, with an object
        of its own, at the subscriber: it never travels. If it raises the answer is no, counted
        among the failures of operators. Cost: some tens of microseconds for each comparison. Raises
        InvalidObventError.

        Source: EPFL 2503 §5.3.3, §5.3.4, §6.6.1.
        """
        return predicate_rule(cls, predicate)

    @classmethod
    def from_notification(cls, notification: Notification) -> Self:
        """The object that a notification carries, of the nearest class known here.

        That is this class or a subclass whose mark, and those of all its ancestors, the
        notification carries. Where it carries more than that class knows, the object is of an
        anonymous subclass, which keeps it. Raises InvalidObventError when it is no obvent of this
        type, or cannot be made.
        """
        made: Self = read_obvent(cls, notification)
        return made

    def to_notification(self) -> Notification:
        """The notification of this object. Raises InvalidObventError, InvalidNotificationError."""
        return to_notification(self)


@overload
def obvent(cls: type[T], /) -> type[T]: ...


@overload
def obvent(
    *, name: str | None = None, earlier: Iterable[str] = ()
) -> Callable[[type[T]], type[T]]: ...


def obvent(
    cls: type[Any] | None = None, *, name: str | None = None, earlier: Iterable[str] = ()
) -> Any:
    """Make a class one of obvents where it does not inherit `Obvent`, or give a struct its name.

    Its subclasses are obvents where they are decorated too. `name` and `earlier` as of `Obvent`.
    """
    if cls is None:
        return lambda given: _decorated(given, name, tuple(earlier))
    return _decorated(cls, name, tuple(earlier))


def type_name_of(cls: type[Any]) -> str:
    """The name of an obvent class, as its type mark has it."""
    if cls is Obvent:
        raise InvalidObventError("Obvent", "it is the root of all obvents and has no name")
    return type_of(cls).name


def _decorated(cls: type[Any], name: str | None, earlier: tuple[str, ...]) -> type[Any]:
    if name is None and names_of(cls):
        name, earlier = names_of(cls)[0], tuple(reversed(names_of(cls)[1:]))
    register(cls, name, earlier)
    forget_received_types(cls)
    if not issubclass(cls, Obvent):
        for taken in ("to_filters", "check_where", "lift", "from_notification"):
            setattr(cls, taken, classmethod(getattr(Obvent, taken).__func__))
        cls.to_notification = Obvent.to_notification
    return cls
