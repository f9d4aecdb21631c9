"""`Rest`: the parts of an obvent that the nearest known class does not have.

An object of an unknown type is of an anonymous subclass of the nearest known class, so it is an
instance of that class. It has a `Rest` beside its fields. If the known class is abstract, its
abstract methods raise.

Source: EPFL 2503 §2.4.2, §3.4.1 (subtypes are added without changes for other participants).
"""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, Final

import msgspec

from contrada.typed.object_parts import Parts

REST: Final = "_obvent_rest"
"""The attribute of an object that holds its `Rest`."""

_UNKNOWN: Final = "__obvent_unknown__"
_ANONYMOUS: Final = "__obvent_anonymous__"


@dataclasses.dataclass(frozen=True, slots=True)
class Rest:
    """The parts of a notification that are not in the fields."""

    marks: tuple[str, ...]
    parts: Parts


def is_unknown(cls: type[Any]) -> bool:
    """Whether a class is the anonymous subclass for unknown types."""
    return _UNKNOWN in cls.__dict__


def known_of(cls: type[Any]) -> type[Any]:
    """Returns the class itself, or the nearest known class."""
    return cls.__bases__[0] if is_unknown(cls) else cls


def rest_of(obvent: Any) -> Rest:
    """Returns the rest of an object of an anonymous class."""
    held: Rest = getattr(obvent, REST)
    return held


def attach_rest(obvent: Any, rest: Rest) -> Any:
    """Returns the object, which is of an anonymous class, with its rest."""
    if isinstance(obvent, msgspec.Struct):
        vars(obvent)[REST] = rest  # The setter of structs refuses other names.
    else:
        object.__setattr__(obvent, REST, rest)
    return obvent


def anonymous_subclass(known: type[Any]) -> type[Any]:
    """Returns the anonymous subclass of a known class."""
    made: type[Any] | None = known.__dict__.get(_ANONYMOUS)
    if made is None:
        made = _made(known)
        setattr(known, _ANONYMOUS, made)
    return made


def _made(known: type[Any]) -> type[Any]:
    name = f"{known.__name__}…"
    space: dict[str, Any] = {_UNKNOWN: True, "__module__": known.__module__}
    for each in getattr(known, "__abstractmethods__", ()):
        space[each] = _stub(known, each)
    if issubclass(known, msgspec.Struct):
        return msgspec.defstruct(name, [], bases=(known,), namespace=space, dict=True, gc=True)
    if not hasattr(known, "__pydantic_validator__"):
        space["__slots__"] = (REST,)
    metaclass: Any = type(known)
    unknown: type[Any] = metaclass(name, (known,), space)
    return unknown


def _stub(known: type[Any], name: str) -> Any:
    def abstract(self: object, *_: object, **__: object) -> Any:
        raise NotImplementedError(
            f"{known.__qualname__}.{name} is abstract; its class is not known"
        )

    held: Callable[..., Any] | property = inspect.getattr_static(known, name)
    return property(abstract) if isinstance(held, property) else abstract
