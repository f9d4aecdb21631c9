"""The slots and the shape of JSON: an object is an element, and an array repeats its name.

`{"story": [{"title": "a"}, {"title": "b"}]}` has the names of two XML elements `story`, in a
document without a root. A scalar is a slot, and so is an object that represents a value (`{"$time":
…}`). Nested arrays are numbered level by level.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from contrada.errors import InputError, InvalidNotificationError, LimitError
from contrada.integrations.documents.naming_strategies import Named, Slot
from contrada.integrations.documents.xml_slots import REPEATED_NAMES_MAX, ElementPath
from contrada.model.algebra import nested_objects as objects

_encode: Final = msgspec.json.encode
_decode: Final = msgspec.json.decode


@dataclass(slots=True)
class ObjectWalk:
    """Visits the content of JSON. `repeated` counts the elements of arrays."""

    escape: bool
    repeated: dict[str, int] = field(default_factory=dict)

    def slots(self, content: Mapping[str, Any], path: ElementPath | None = None) -> Iterator[Slot]:
        """Yields the slots of an object. Raises LimitError and InvalidNotificationError."""
        depth = 1 if path is None else path.depth
        if depth > objects.OBJECT_DEPTH_MAX:
            raise LimitError("OBJECT_DEPTH_MAX", objects.OBJECT_DEPTH_MAX)
        for key, member in content.items():
            if path is not None and path.plain:
                below = path.child(key)
            else:
                top = ElementPath.to_root(key, escape=self.escape)
                below = replace(top, numbers=("1",), depth=depth + 1)
            yield from self._member(below, member)

    def _member(self, path: ElementPath, member: Any, before: str = "") -> Iterator[Slot]:
        if isinstance(member, list):
            yield from self._items(path, member, before)
        elif isinstance(member, dict) and not objects.is_typed(member):
            yield from self.slots(member, path)
        else:
            yield path.text(1, _scalar(path.plain, member), alone=True)

    def _items(self, path: ElementPath, items: list[Any], before: str) -> Iterator[Slot]:
        if path.depth > objects.OBJECT_DEPTH_MAX:
            raise LimitError("OBJECT_DEPTH_MAX", objects.OBJECT_DEPTH_MAX)
        if len(items) > 1 and (
            path.plain in self.repeated or len(self.repeated) < REPEATED_NAMES_MAX
        ):
            self.repeated[path.plain] = max(len(items), self.repeated.get(path.plain, 0))
        for number, each in enumerate(items, start=1):
            mark = f"{before}{number}"
            item = replace(path, numbers=(*path.numbers[:-1], mark), depth=path.depth + 1)
            if len(items) > 1:
                indexed, position = f"{path.indexed}.{number - 1}", f"{path.position}[{number}]"
                item = replace(item, indexed=indexed, position=position)
            yield from self._member(item, each, f"{mark}-")


def _scalar(name: str, member: Any) -> Any:
    if not isinstance(member, dict):
        return member
    try:
        return objects.value_of_json(member)
    except ValueError as error:
        raise InvalidNotificationError(name, dict(member), f"expected {error}") from None


def outermost_array(content: Any) -> str | None:
    """Returns the path of the outermost array with several objects, joined by dots.

    Of several at one depth it is the longest, then the first. None if there is none.
    """
    level: list[tuple[str, Any]] = [("", content)]
    while level:
        found: list[tuple[int, str]] = []
        below: list[tuple[str, Any]] = []
        for path, each in level:
            for key, member in each.items():
                name = f"{path}.{key}" if path else key
                if isinstance(member, dict):
                    below.append((name, member))
                elif isinstance(member, list):
                    objects = sum(1 for item in member if isinstance(item, dict))
                    found += [(len(member), name)] if objects > 1 and "." not in key else []
        if found:
            return max(found, key=lambda each: each[0])[1]
        level = below
    return None


# --- the shape ------------------------------------------------------------------------------------


def shape_of_content(content: Any, names: Iterator[Named], holds: Callable[[str], Any]) -> Any:
    """Returns content without the scalars that attributes hold; `holds` gives their values."""
    if isinstance(content, list):
        return [shape_of_content(each, names, holds) for each in content]
    if isinstance(content, dict) and not objects.is_typed(content):
        return {key: shape_of_content(each, names, holds) for key, each in content.items()}
    held = holds(next(names).name)
    if held is DROPPED:
        return _encode(None)
    if held is MISSING or type(held) is tuple or type(held) is list:
        return _encode(content)
    shown = objects.json_value(held)
    return None if shown == content and type(shown) is type(content) else _encode(content)


MISSING: Final = object()
"""Marks an absent attribute."""

LACKING: Final = "an attribute is missing that its shape asks for"

DROPPED: Final = object()
"""Marks an attribute that must not be published."""


def filled(shape: Any, value: Callable[[], Any]) -> Any:
    """Returns the content of a shape; `value` is called for each scalar, and used for nil."""
    if isinstance(shape, list):
        return [filled(each, value) for each in shape]
    if isinstance(shape, dict):
        return {key: filled(each, value) for key, each in shape.items()}
    held = value()
    if held is MISSING and shape is None:
        raise InputError("notification", LACKING)
    return objects.json_value(held) if shape is None else _decode(shape)
