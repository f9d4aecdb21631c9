"""`attributes_of`: events of Windows as attributes, with the names that Sigma rules use.

The header's elements keep their names, their attributes are joined to them with an underscore
(`Execution_ProcessID`); the event's own data keeps its names. The provider's name occurs twice, as
`Provider_Name` and as `SourceName`, since collectors differ (see `log_sources.FIELDS`).

Source: Sigma specification 2.1.0, section on the usage of fields.
"""

from collections.abc import Iterator, Mapping
from itertools import permutations
from typing import Any, Final, TypeAlias

from contrada.errors import InputError, LimitError
from contrada.model.algebra.nested_objects import OBJECT_DEPTH_MAX
from contrada.model.domains.values import Value, is_system_name

EventAttributes: TypeAlias = dict[str, Value | list[Value]]
_EventItem: TypeAlias = tuple[str, Value | list[Value]]

_XML_ATTRIBUTES: Final = "#attributes"
_XML_TEXT: Final = "#text"
_NAMESPACE: Final = "xmlns"
_SCALARS: Final = (str, int, float)


def attributes_of(event: Mapping[str, Any]) -> EventAttributes:
    """Returns the attributes of an event from parsed JSON.

    The event is either nested like an export of the event log (`Event`, in it `System` and
    `EventData` or `UserData`), or flat. Null is omitted, and so are system names such as `@id`. If
    data has the name of a header field, its attribute is `EventData_NAME`. Elements within elements
    of data are joined to these (`Certificate_fileRef`). A list is several values of one attribute.
    Raises InputError for maps in a flat event, and for others in place of maps, and LimitError.
    """
    event = _map("event", event)
    inner = _map("Event", event["Event"]) if "Event" in event else event
    header = inner.get("System")
    if header is None:
        attributes = dict(_plain(inner))
    else:
        attributes = dict(_header(_map("System", header)))
        for part in ("EventData", "UserData"):
            found: dict[str, list[Value]] = {}
            for name, values in _data(_map(part, inner.get(part) or {})):
                found.setdefault(name, []).extend(values)
            for name, values in found.items():
                attribute = f"{part}_{name}" if name in attributes else name
                attributes[attribute] = values[0] if len(values) == 1 else values
    for name, other in permutations(("Provider_Name", "SourceName")):
        if name in attributes:
            attributes.setdefault(other, attributes[name])
    return attributes


def _map(name: str, value: Any) -> Mapping[str, Any]:
    """Returns the value, which must be a map with texts as keys."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InputError(name, f"expected a map of names to values, found {value!r}")
    return value


def _header(header: Mapping[str, Any]) -> Iterator[_EventItem]:
    for name, value in header.items():
        if isinstance(value, dict):
            described = _map(name, value.get(_XML_ATTRIBUTES) or {})
            yield from _plain({f"{name}_{each}": held for each, held in described.items()})
            value = value.get(_XML_TEXT)
        yield from _plain({name: value})


def _data(data: Mapping[str, Any]) -> Iterator[tuple[str, list[Value]]]:
    """Yields the names and values of event data; for user data, those of its only element."""
    for name, value in data.items():
        if name == _XML_ATTRIBUTES:
            continue
        if not isinstance(value, dict) or _XML_TEXT in value:
            yield from _elements(name, value, 1)
            continue
        for each, held in _map(name, value).items():
            yield from _elements(name if each == _XML_ATTRIBUTES else each, held, 1)


def _elements(name: str, value: Any, depth: int) -> Iterator[tuple[str, list[Any]]]:
    """Yields the values of an element, of its attributes, and of the elements in it."""
    if depth > OBJECT_DEPTH_MAX:
        raise LimitError("OBJECT_DEPTH_MAX", OBJECT_DEPTH_MAX)
    if isinstance(value, list):
        for each in value:
            yield from _elements(name, each, depth + 1)
    elif isinstance(value, dict):
        for each, held in _map(name, value).items():
            own = each in (_XML_TEXT, _XML_ATTRIBUTES)
            if each != _NAMESPACE:
                yield from _elements(name if own else f"{name}_{each}", held, depth + 1)
    else:
        for _, one in _plain({name: value}):
            yield name, [one]


def _plain(values: Mapping[str, Any]) -> Iterator[_EventItem]:
    for name, value in values.items():
        held = value[_XML_TEXT] if isinstance(value, dict) and _XML_TEXT in value else value
        if held is None or is_system_name(name):
            continue
        if isinstance(held, list) and all(isinstance(each, _SCALARS) for each in held):
            yield name, list(held)
        elif isinstance(held, _SCALARS):
            yield name, held
        else:
            raise InputError(name, f"expected a value or a list of values, found {value!r}")
