"""Obvents: events that are objects of a class, published and subscribed by their type.

    @dataclass
    class StockObvent(Obvent):
        company: str

    @dataclass
    class StockQuote(StockObvent):
        price: float

    async with service.subscribe(StockQuote, "price < 100") as quotes: ...
    await service.publish(StockQuote("Telco", 80.0))

Invariants: the notification of an obvent carries the type mark of its class and of every
ancestor up to Obvent; a subscription to a class asks for its mark and those of all its
ancestors, so that a subscription to a class covers those to its subclasses by the ordinary
algebra of filters. A type's name is given or module-qualified, the same in every process.

Source: EPFL 2503 §3.2 to §3.4 (obvents, their types, conformance).
"""

import weakref
from typing import Any, ClassVar, Final, Self

from contrada.errors import InvalidNameError, InvalidObventError
from contrada.model import Filter, FilterSet, Notification, mark_name
from contrada.model.domains.values import check_name, is_system_name
from contrada.typed.fields import Field, fields_of

_classes: Final[weakref.WeakValueDictionary[str, "type[Obvent]"]] = weakref.WeakValueDictionary()
_fields: Final[weakref.WeakKeyDictionary[type, tuple[Field, ...]]] = weakref.WeakKeyDictionary()


class Obvent:
    """The root of all classes whose objects are events; subclasses are dataclasses.

    `class StockQuote(StockObvent, name="StockQuote")` gives the type's name; without one it is
    the module and the qualified name of the class. Raises InvalidObventError for a class in
    `__main__` without a name (no other process could know it), a name that another class has,
    and fields that are no values of the model (these at first use).

    Source: EPFL 2503 §3.2.
    """

    __obvent_name__: ClassVar[str]

    def __init_subclass__(cls, *, name: str | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        # `@dataclass(slots=True)` makes the class anew, with what this class holds already.
        given = name if name is not None else cls.__dict__.get("__obvent_name__")
        cls.__obvent_name__ = _checked_name(cls, given)
        _register(cls)

    @classmethod
    def to_filters(cls) -> Filter:
        """The filter of a subscription to this type: its mark and those of all ancestors."""
        _fields_of(cls)
        return Filter({mark_name(name): True for name in _marks(cls)})

    @classmethod
    def check_where(cls, where: Filter | FilterSet) -> None:
        """Raises InvalidObventError where a filter names no field of this type.

        Of notifications of this type it could match those of some subtype only, or none: then the
        subtype is what to subscribe to. Names that begin with `@` are of all notifications.
        """
        known = {field.name for field in _fields_of(cls)}
        for name in (name for member in where.filters for name in member.sets):
            if not is_system_name(name) and name not in known:
                expected = ", ".join(sorted(known)) or "none"
                raise InvalidObventError(
                    type_name_of(cls),
                    f"`where` names {name!r}, which is no field; expected {expected}",
                )

    @classmethod
    def from_notification(cls, notification: Notification) -> Self:
        """The object that a notification carries, of the nearest class known here.

        That is this class or a subclass whose mark, and those of all its ancestors, the
        notification carries; the one with the most marks, the first by name among equals.
        Raises InvalidObventError when it is no obvent of this type or lacks a field.
        """
        attributes = notification.attributes
        if not all(attributes.get(mark_name(name)) is True for name in _marks(cls)):
            raise InvalidObventError(type_name_of(cls), "the notification is not of this type")
        kind = _nearest(cls, notification)
        type_name = type_name_of(kind)
        arguments: dict[str, object] = {}
        for field in _fields_of(kind):
            if field.name in attributes:
                try:
                    arguments[field.name] = field.restored(attributes[field.name])
                except ValueError as error:
                    raise InvalidObventError(type_name, str(error)) from None
            elif field.required:
                raise InvalidObventError(type_name, f"field {field.name!r} is absent")
        try:
            made: Self = kind(**arguments)
        except Exception as error:  # Its own __post_init__ may raise anything.
            raise InvalidObventError(type_name, f"it cannot be made: {error!r}") from error
        return made

    def to_notification(self) -> Notification:
        """The notification of this object. Raises InvalidObventError, InvalidNotificationError."""
        cls = type(self)
        attributes: dict[str, Any] = {}
        for field in _fields_of(cls):
            value = getattr(self, field.name)
            if not field.holds(value):
                raise InvalidObventError(
                    type_name_of(cls), f"{field.name} = {value!r}: expected {field.expected}"
                )
            attributes[field.name] = value
        return Notification.marked(attributes, marks=_marks(cls))


_RESERVED: Final = frozenset(name for name in vars(Obvent) if not name.startswith("__"))


def type_name_of(cls: type[Obvent]) -> str:
    """The name of an obvent class, as its type mark has it."""
    if cls is Obvent:
        raise InvalidObventError("Obvent", "it is the root of all obvents and has no name")
    return cls.__obvent_name__


def _marks(cls: type[Obvent]) -> tuple[str, ...]:
    """The names of the class and its ancestors, without Obvent, nearest first."""
    return tuple(
        ancestor.__obvent_name__
        for ancestor in cls.__mro__
        if issubclass(ancestor, Obvent) and ancestor is not Obvent
    )


def _fields_of(cls: type[Obvent]) -> tuple[Field, ...]:
    if cls is Obvent:
        raise InvalidObventError("Obvent", "subscribe to or publish a subclass of it")
    found = _fields.get(cls)
    if found is None:
        found = _fields[cls] = fields_of(cls, cls.__obvent_name__, _RESERVED)
    return found


def _nearest(cls: type[Obvent], notification: Notification) -> type[Any]:
    carried = notification.attributes

    def carries_all(kind: type[Obvent]) -> bool:
        return all(carried.get(mark_name(name)) is True for name in _marks(kind))

    known = [kind for kind in _descendants(cls) if carries_all(kind)]
    return min(known, key=lambda kind: (-len(_marks(kind)), kind.__obvent_name__))


def _descendants(cls: type[Obvent]) -> set[type[Obvent]]:
    """The class and its registered subclasses, however deep."""
    found = {cls}
    open_ = [cls]
    while open_:
        for kind in open_.pop().__subclasses__():
            if kind not in found and _classes.get(kind.__obvent_name__) is kind:
                found.add(kind)
                open_.append(kind)
    return found


def _checked_name(cls: type[Obvent], given: str | None) -> str:
    if given is None:
        if cls.__module__ == "__main__":
            raise InvalidObventError(
                cls.__qualname__,
                "a class of __main__ needs a name that other processes know too: "
                f'class {cls.__name__}(..., name="{cls.__name__}")',
            )
        given = f"{cls.__module__}.{cls.__qualname__}"
    try:
        check_name(given)
        check_name(mark_name(given))
    except InvalidNameError as error:
        raise InvalidObventError(str(given), error.reason) from None
    return given


def _register(cls: type[Obvent]) -> None:
    name = cls.__obvent_name__
    other = _classes.get(name)
    if other is not None and (other.__module__, other.__qualname__) != (
        cls.__module__,
        cls.__qualname__,
    ):
        raise InvalidObventError(
            name, f"the class {other.__module__}.{other.__qualname__} has this name already"
        )
    _classes[name] = cls
