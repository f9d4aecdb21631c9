"""`Obvent`: typed events, called obvents, which are published and subscribed by their class.

    @dataclass
    class StockObvent(Obvent):
        company: str

    @dataclass
    class StockQuote(StockObvent):
        price: float

    async with service.subscribe(StockQuote, lambda q: q.price < 100) as quotes: ...
    await service.publish(StockQuote("Telco", 80.0))

Invariants: the notification of an obvent has the type mark of its class and of each ancestor below
Obvent. A subscription to a class requires its mark and those of all its ancestors. So a
subscription to a class covers those to its subclasses, by the algebra of filters alone. The name of
a type is given or module-qualified, the same in all processes.

An object of an unknown type is read as one of the nearest known class: of an anonymous subclass,
which keeps the parts that this class does not have. So it is published again without loss.

Source: EPFL 2503 §3.2 to §3.4 (obvents, their types, conformance).
"""

from collections.abc import Callable, Iterable
from typing import Any, Self, TypeVar, overload

from contrada.errors import InvalidObventError
from contrada.model import Filter, FilterSet, Notification
from contrada.model.rule import Rule
from contrada.service import Predicate
from contrada.typed.obvent_type import forget_received_types, read_obvent, to_notification, type_of
from contrada.typed.predicate_rule import predicate_rule
from contrada.typed.type_names import names_of, register
from contrada.typed.unknown_types import is_unknown

T = TypeVar("T")


class Obvent:
    """The root of all obvent classes, that is, of classes of typed events.

    Subclasses are dataclasses, attrs classes, pydantic models, msgspec structs, or plain classes
    with annotations. Objects of the last are restored by setting their fields, without a call of
    `__init__`.

    `class StockQuote(StockObvent, name="StockQuote")` names the type; the default is the module and
    the qualified name of the class. `earlier` are its former names, the oldest first. Raises
    InvalidObventError for a class in `__main__` without a name (no other process could know it), a
    name of another class, and, at first use, for fields that cannot be encoded. Structs take no
    arguments in their definition: `@obvent(name=…)` names them.

    Source: EPFL 2503 §3.2.
    """

    __slots__ = ()

    def __init_subclass__(
        cls, *, name: str | None = None, earlier: Iterable[str] = (), **options: Any
    ) -> None:
        super().__init_subclass__(**options)
        if is_unknown(cls):
            return
        # `@dataclass(slots=True)` makes a second class with the attributes of this one.
        held = names_of(cls)
        if held and name is None:
            name, earlier = held[0], reversed(held[1:])
        register(cls, name, tuple(earlier))
        forget_received_types(cls)

    @classmethod
    def to_filters(cls) -> Filter:
        """Returns the filter of a subscription: the marks of this type and all ancestors."""
        return type_of(cls).filters

    @classmethod
    def check_where(cls, where: Filter | FilterSet) -> None:
        """Raises InvalidObventError if a filter names no field of this type.

        Such a filter could match only objects of some subtype: subscribe to the subtype instead.
        Names that begin with `@` exist in all notifications.
        """
        type_of(cls).check_where(where)

    @classmethod
    def lift(cls, predicate: Predicate[Self]) -> Rule:
        """Returns the filters that cover a predicate over objects of this type, with its residue.

        The subscriber evaluates the residue, the part that the algebra cannot express, with an
        object of its own. The predicate itself never travels. If it raises, it does not match, and
        the failure is counted among those of operators. Cost: some tens of microseconds for each
        comparison. Raises InvalidObventError.

        Source: EPFL 2503 §5.3.3, §5.3.4, §6.6.1.
        """
        return predicate_rule(cls, predicate)

    @classmethod
    def from_notification(cls, notification: Notification) -> Self:
        """Returns the object of a notification, of the nearest known class.

        This is the class, or a subclass with its mark and those of all its ancestors in the
        notification. If the notification has more parts, the object is of an anonymous subclass,
        which keeps them. Raises InvalidObventError if it is no obvent of this type, or cannot be
        read.
        """
        made: Self = read_obvent(cls, notification)
        return made

    def to_notification(self) -> Notification:
        """Returns its notification. Raises InvalidObventError, InvalidNotificationError."""
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
    """Makes a class without the base `Obvent` an obvent class, or names a struct.

    Subclasses are obvent classes if they are decorated, too. `name` and `earlier` as in `Obvent`.
    """
    if cls is None:
        return lambda given: _decorated(given, name, tuple(earlier))
    return _decorated(cls, name, tuple(earlier))


def type_name_of(cls: type[Any]) -> str:
    """Returns the name of an obvent class, as in its type mark."""
    if cls is Obvent:
        raise InvalidObventError("Obvent", "it is the root of all obvents and has no name")
    return type_of(cls).name


def _decorated(cls: type[Any], name: str | None, earlier: tuple[str, ...]) -> type[Any]:
    if name is None and names_of(cls):
        name, earlier = names_of(cls)[0], tuple(reversed(names_of(cls)[1:]))
    register(cls, name, earlier)
    forget_received_types(cls)
    if not issubclass(cls, Obvent):
        for method in ("to_filters", "check_where", "lift", "from_notification"):
            setattr(cls, method, classmethod(getattr(Obvent, method).__func__))
        cls.to_notification = Obvent.to_notification
    return cls
