"""`Obvent`: typed events, called obvents, which are published and subscribed by their class.

Invariants: the notification of an obvent has the type mark of its class and of each ancestor below
Obvent. A subscription to a class requires its mark and those of all its ancestors. So a
subscription to a class covers those to its subclasses, by the algebra of filters alone.

The semantic types, from `Unreliable` on, choose the delivery of the objects of a class that has
them as bases, `class Trade(Certified, CausalOrder, StockObvent)`. They are obvent types, too.

Source: EPFL 2503 §3.2 to §3.4 (obvents, their types, conformance), §5.2.2, figure 5.3 (semantics).
See docs/typed.md.
"""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Self, TypeVar, overload

from contrada.errors import InvalidObventError
from contrada.model import Filter, FilterSet, Notification
from contrada.model.rule import Rule
from contrada.service import Predicate
from contrada.typed.object_parts import is_unknown
from contrada.typed.obvent_type import (
    check_definition,
    plain_attributes,
    read_obvent,
    to_notification,
    type_of,
)
from contrada.typed.predicate_rule import predicate_rule
from contrada.typed.qos import EXPIRING, PRIORITIZED
from contrada.typed.type_names import is_root, names_of, register, type_marks

T = TypeVar("T")


class _OfRoot:
    """The residue of subscriptions to the root, whose filter matches all notifications."""

    def __get__(self, _: object, cls: type[Any]) -> Callable[[Notification], bool] | None:
        return is_typed if is_root(cls) else None


class Obvent:
    """The root of all obvent classes, that is, of classes of typed events.

    A subscription to it receives the objects of all classes; those of unknown ones keep what they
    have beside their marks. All notifications travel to it, and the subscriber drops untyped ones.

    Subclasses are dataclasses, attrs classes, pydantic models, msgspec structs, or plain classes
    with annotations. Objects of the last are restored by setting their fields, without a call of
    `__init__`.

    `class StockQuote(StockObvent, name="StockQuote")` names the type; the default is the module and
    the qualified name of the class. `earlier` are its former names, the oldest first. Raises
    InvalidObventError for a class in `__main__` without a name (no other process could know it), a
    name of another class, and for fields that cannot be encoded; at first use for what is known
    only then, as a class that is defined later. Structs take no arguments in their definition:
    `@obvent(name=…)` names them.

    Source: EPFL 2503 §3.2.
    """

    __slots__ = ()
    __obvent_root__ = True
    residue_holds = _OfRoot()

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
        check_definition(cls)

    @classmethod
    def to_filters(cls) -> Filter:
        """Returns the filter of a subscription: the marks of this type and all ancestors.

        That of the root is `everything`, and its residue asks for any mark.
        """
        return type_of(cls).filters

    @classmethod
    def check_where(cls, where: Filter | FilterSet) -> Filter | FilterSet:
        """Returns filters that narrow this type, with each field under its aliases, too.

        Raises InvalidObventError if a filter names no field of this type. Such a filter could match
        only objects of some subtype: subscribe to the subtype instead. Names that begin with `@`
        exist in all notifications.
        """
        return type_of(cls).check_where(where)

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

    to_notification = to_notification
    __obvent_attributes__ = plain_attributes


def is_typed(notification: Notification) -> bool:
    """Whether a notification has the mark of a type."""
    return any(notification[mark] is True for mark in type_marks(notification))


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
    check_definition(cls, is_made=True)
    if not issubclass(cls, Obvent):
        for method in ("to_filters", "check_where", "lift", "from_notification"):
            setattr(cls, method, classmethod(getattr(Obvent, method).__func__))
        cls.to_notification = to_notification
        cls.__obvent_attributes__ = plain_attributes
    return cls


class Unreliable(Obvent, name="Unreliable"):
    """Best-effort delivery; the default."""

    __slots__ = ()


class Reliable(Obvent, name="Reliable"):
    """Each subscriber that is up long enough gets each object once."""

    __slots__ = ()


class Certified(Reliable, name="Certified"):
    """As Reliable, also for subscribers that disconnect or fail, and when servers restart."""

    __slots__ = ()


class FIFOOrder(Reliable, name="FIFOOrder"):
    """Objects of one publisher are delivered in the order of their publication."""

    __slots__ = ()


class CausalOrder(FIFOOrder, name="CausalOrder"):
    """An object is delivered after all objects that its publisher had received."""

    __slots__ = ()


class TotalOrder(Reliable, name="TotalOrder"):
    """All subscribers get the objects in one order, that of the most general such type."""

    __slots__ = ()


class Expiring(Obvent, name=EXPIRING):
    """The object expires `ttl_s` seconds after its publication, the `@time` of its envelope.

    `ttl_s` is a field, a property or a class attribute.
    """

    __slots__ = ()


class Prioritized(Obvent, name=PRIORITIZED):
    """Objects with a higher `priority`, 0 to 9, are delivered first.

    `priority` is a field, a property or a class attribute.
    """

    __slots__ = ()


class Disseminated(Obvent, name="Disseminated"):
    """Objects travel by the dissemination that the class attribute `dissemination` names.

    The name is registered with each service that publishes or subscribes them
    (`Service.register_dissemination`). Delivery is best effort, so the class is not Reliable.
    """

    __slots__ = ()

    dissemination: ClassVar[str]

    @classmethod
    def chosen_dissemination(cls) -> str:
        """Returns the name.

        Raises InvalidObventError if there is none, or if the class guarantees more than best
        effort.
        """
        kind = type_of(cls)
        name: object = getattr(cls, "dissemination", None)
        if not isinstance(name, str) or not name:
            reason = f"it is Disseminated and has dissemination = {name!r}: a class attribute, text"
            raise InvalidObventError(kind.name, reason)
        if kind.qos.is_reliable:
            reason = f"it is Disseminated, at best effort, and {kind.qos.delivery}: choose one"
            raise InvalidObventError(kind.name, reason)
        return name
