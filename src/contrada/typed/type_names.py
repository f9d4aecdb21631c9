"""The registry of obvent classes and their names.

The name of a type is given or module-qualified, the same in all processes. A renamed class keeps
its former names: its objects are published with all names, and subscriptions require the oldest
one. So participants that know any of the names understand each other.

Source: EPFL 2503 §3.4.2 (names of types), §2.4.2 (types that evolve).
"""

import weakref
from collections.abc import Collection, Iterable
from typing import Any, Final

from contrada.errors import InvalidNameError, InvalidObventError
from contrada.model import mark_name
from contrada.model.domains.values import MARK_PREFIX, check_name

NAMES: Final = "__obvent_names__"
"""The attribute of a class for its names, the present one first, the oldest last."""

ROOT: Final = "__obvent_root__"
"""The attribute of the root of all types. The root has neither a name nor a mark."""

TOGETHER: Final = "Together"
"""The type name of several obvents published as one; no class may have it."""

_PUBLISHED_BY: Final = "by("
"""The beginning of a mark of the publisher's type; no name of a type begins so."""

_classes: Final[weakref.WeakValueDictionary[str, type[Any]]] = weakref.WeakValueDictionary()
_registered: int = 0


def register(cls: type[Any], name: str | None, earlier: tuple[str, ...]) -> None:
    """Registers the name of a class, and its former names, the oldest first.

    Raises InvalidObventError for a class of `__main__` without a name, an invalid name, and the
    name of another class.
    """
    names = (_checked_name(cls, name), *(_checked_name(cls, each) for each in reversed(earlier)))
    for each in names:
        other = _classes.get(each)
        if other is not None and _default_name(other) != _default_name(cls):
            raise InvalidObventError(
                each, f"the class {_default_name(other)} has this name already"
            )
    setattr(cls, NAMES, names)
    for each in names:
        _classes[each] = cls
    global _registered
    _registered += 1


def registrations() -> int:
    """Returns the number of registrations, which validates caches over all classes."""
    return _registered


def names_of(cls: type[Any]) -> tuple[str, ...]:
    """Returns the names of a class, the present one first; none for an unregistered class."""
    names: tuple[str, ...] = cls.__dict__.get(NAMES, ())
    return names


def is_root(cls: type[Any]) -> bool:
    """Whether a class is the root of all types."""
    return ROOT in cls.__dict__


def given_names(cls: type[Any]) -> tuple[str, ...]:
    """Returns the names of a class, or its default name. Raises InvalidObventError."""
    return names_of(cls) or (_checked_name(cls, None),)


def class_named(name: str) -> type[Any] | None:
    """Returns the class with a present or former name."""
    return _classes.get(name)


def ancestors_of(cls: type[Any]) -> tuple[type[Any], ...]:
    """Returns the class and its ancestors that are obvent classes, nearest first."""
    return tuple(ancestor for ancestor in cls.__mro__ if names_of(ancestor))


def marks_of(cls: type[Any]) -> tuple[str, ...]:
    """Returns the attributes that mark an object: all names of its class and ancestors."""
    return tuple(mark_name(name) for each in ancestors_of(cls) for name in names_of(each))


def publisher_mark(name: str) -> str:
    """Returns the mark of publications by objects of a class."""
    mark = mark_name(f"{_PUBLISHED_BY}{name})")
    try:
        return check_name(mark)
    except InvalidNameError as error:
        raise InvalidObventError(name, error.reason) from None


def type_marks(names: Iterable[str]) -> tuple[str, ...]:
    """Returns the marks of an object's types in attribute names, without its publisher's."""
    published_by = mark_name(_PUBLISHED_BY)
    marks = (it for it in names if it.startswith(MARK_PREFIX))
    return tuple(it for it in marks if not it.startswith(published_by))


def required_marks_of(cls: type[Any]) -> tuple[str, ...]:
    """Returns the marks that a subscription requires: the oldest of a class and its ancestors."""
    return tuple(mark_name(names_of(each)[-1]) for each in ancestors_of(cls))


def descendants_of(cls: type[Any]) -> set[type[Any]]:
    """Returns the class and all its registered subclasses."""
    found = {cls}
    open_ = [cls]
    while open_:
        for kind in type.__subclasses__(open_.pop()):
            if kind not in found:
                names = names_of(kind)
                if not names or _classes.get(names[0]) is kind:
                    found.add(kind)
                    open_.append(kind)
    return {each for each in found if names_of(each)}


def conforming_classes(marks: Collection[str]) -> list[type[Any]]:
    """Returns the classes with all their marks, ancestors included, among these; nearest first."""
    named = {_classes.get(mark[len(MARK_PREFIX) :]) for mark in marks}
    found = [cls for cls in named if cls is not None and set(required_marks_of(cls)) <= set(marks)]
    return sorted(found, key=lambda cls: (-len(required_marks_of(cls)), names_of(cls)[0]))


def _default_name(cls: type[Any]) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _specialized_name(cls: type[Any]) -> str | None:
    """Returns the name of a generic class with arguments, `Box[int]` of `Box`: pydantic makes a
    subclass for it, which nobody can name. None for any other class, and without a name of `Box`.
    """
    base = cls.__bases__[0]
    names, arguments = names_of(base), cls.__name__.removeprefix(base.__name__)
    is_specialized = arguments.startswith("[") and arguments != cls.__name__
    return f"{names[0]}{arguments}" if names and is_specialized else None


def _checked_name(cls: type[Any], given: str | None) -> str:
    given = _specialized_name(cls) if given is None else given
    if given is None:
        if cls.__module__ == "__main__":
            raise InvalidObventError(
                cls.__qualname__,
                "a class of __main__ needs a name that other processes know too: "
                f'class {cls.__name__}(..., name="{cls.__name__}") or '
                f'@ct.obvent(name="{cls.__name__}")',
            )
        given = _default_name(cls)
    try:
        check_name(given)
        check_name(mark_name(given))
    except InvalidNameError as error:
        raise InvalidObventError(str(given), error.reason) from None
    if given.startswith(_PUBLISHED_BY):
        raise InvalidObventError(given, "this beginning is reserved for types of publishers")
    if given == TOGETHER:
        raise InvalidObventError(given, "several obvents published as one have this name")
    return given
