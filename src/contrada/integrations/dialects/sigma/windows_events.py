"""`attributes_of`: events of Windows as attributes, with the names that Sigma rules use.

The header's elements keep their names, their attributes are joined to them with an underscore
(`Execution_ProcessID`); the event's own data keeps its names. The provider's name occurs twice, as
`Provider_Name` and as `SourceName`, since collectors differ (see `log_sources.FIELDS`).

Source: Sigma specification 2.1.0, section on the usage of fields.
"""

from collections.abc import Iterator, Mapping
from itertools import permutations
from typing import Any, Final, TypeAlias

from contrada.errors import InputError
from contrada.model.domains.values import Value, is_system_name

EventAttributes: TypeAlias = dict[str, Value | list[Value]]
_EventItem: TypeAlias = tuple[str, Value | list[Value]]

_XML_ATTRIBUTES: Final = "#attributes"
_XML_TEXT: Final = "#text"
_SCALARS: Final = (str, int, float)


def attributes_of(event: Mapping[str, Any]) -> EventAttributes:
    """Returns the attributes of an event from parsed JSON.

    The event is either nested like an export of the event log (`Event`, in it `System` and
    `EventData` or `UserData`), or flat. Null is omitted, and so are system names such as `@id`. If
    data has the name of a header field, its attribute is `EventData_NAME`. A list is several values
    of one attribute. Raises InputError for deeper values, and for others in place of maps.
    """
    event = _map("event", event)
    inner = _map("Event", event["Event"]) if "Event" in event else event
    header = inner.get("System")
    if header is None:
        attributes = dict(_plain(inner))
    else:
        attributes = dict(_header(_map("System", header)))
        for part in ("EventData", "UserData"):
            for name, value in _data(_map(part, inner.get(part) or {})):
                attributes[f"{part}_{name}" if name in attributes else name] = value
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


def _data(data: Mapping[str, Any]) -> Iterator[_EventItem]:
    """Yields the names and values of event data; for user data, those of its only element."""
    for name, value in data.items():
        if name != _XML_ATTRIBUTES:
            is_nested = isinstance(value, dict) and _XML_TEXT not in value
            inner = _map(name, value) if is_nested else {name: value}
            yield from _plain({k: v for k, v in inner.items() if k != _XML_ATTRIBUTES})


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
