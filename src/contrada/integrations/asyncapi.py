"""`asyncapi_of`: the handlers and repliers of an app as a document of AsyncAPI 3.0.

A channel of AsyncAPI has an address, as a topic has. Content-based subscriptions have none, so each
handler is a channel with a null address, and its filter is under `x-contrada-filter`. Payloads of
classes are their JSON Schemas, those of notifications the attributes that the filter names.

Source: the AsyncAPI Specification 3.0.0 (channels, operations, reply, components).
"""

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from contrada.app import App, AppSubscriber
from contrada.errors import InvalidObventError
from contrada.model import Filter, FilterSet, Pattern
from contrada.model.domains.values import ABSENT_KEY
from contrada.service.requests import filters_of
from contrada.typed.obvent_schema import schema_of

VERSION: Final = "3.0.0"

_NOT_A_KEY: Final = re.compile(r"[^\w.-]", re.ASCII)
_DEFINITIONS: Final = "#/$defs/"
_SCHEMAS: Final = "#/components/schemas/"


def asyncapi_of(app: App, *, title: str, version: str = "0.1.0") -> dict[str, Any]:
    """Returns the document as built-in values, ready for JSON.

    Raises InvalidObventError for a class without a schema, and as `subscribe` for a wrong subject.
    """
    parts = _DocumentParts()
    for each in app.subscribers:
        parts.add_subscriber(each)
    for subject, function, _ in app.repliers:
        parts.add_replier(filters_of(subject), function)
    document: dict[str, Any] = {
        "asyncapi": VERSION,
        "info": {"title": title, "version": version},
        "defaultContentType": "application/json",
    }
    if servers := _servers(app.address):
        document["servers"] = servers
    return document | {
        "channels": parts.channels,
        "operations": parts.operations,
        "components": {"messages": parts.messages, "schemas": parts.schemas},
    }


class _DocumentParts:
    """The parts of a document."""

    def __init__(self) -> None:
        self.channels: dict[str, Any] = {}
        self.operations: dict[str, Any] = {}
        self.messages: dict[str, Any] = {}
        self.schemas: dict[str, Any] = {}

    def add_subscriber(self, of: AppSubscriber) -> None:
        """Adds a handler: the app receives the messages of a channel."""
        name = self._new_name(of.name)
        found = of.filters()
        if of.kind is None:
            message = self._add_message(name, _payload(found))
        else:
            message = self._add_class(of.kind)
        channel: dict[str, Any] = {"address": None, "messages": _reference("messages", message)}
        if found is not None:
            channel["x-contrada-filter"] = str(found)
        if "durable" in of.options:
            channel["x-contrada-durable"] = of.options["durable"]
        self.channels[name] = channel
        self.operations[name] = _operation(name, of.function)

    def add_replier(self, found: Filter | FilterSet, function: Any) -> None:
        """Adds a replier: the app receives requests, and replies on the way of the request."""
        name = self._new_name(getattr(function, "__name__", "reply"))
        reply = self._new_name(f"{name}_reply")
        for each, payload in ((name, _payload(found)), (reply, {"type": "object"})):
            message = self._add_message(each, payload)
            self.channels[each] = {"address": None, "messages": _reference("messages", message)}
        self.channels[name]["x-contrada-filter"] = str(found)
        self.operations[name] = {
            **_operation(name, function),
            "reply": {"channel": {"$ref": f"#/channels/{reply}"}},
        }

    def _new_name(self, wanted: str) -> str:
        """Returns a key of channels and operations that is not in use."""
        name = base = _NOT_A_KEY.sub("_", wanted)
        number = 1
        while name in self.channels:
            number += 1
            name = f"{base}_{number}"
        return name

    def _add_message(self, name: str, payload: dict[str, Any]) -> str:
        key = f"{name}.notification"  # A class may have the name of a function.
        self.messages[key] = {"payload": payload}
        return key

    def _add_class(self, cls: type) -> str:
        """Adds the message and the schemas of a class, once; returns the name of the message."""
        schema = schema_of(cls)
        schema.pop("$schema")
        definitions: Mapping[str, Any] = schema.pop("$defs", {})
        for name, each in {**definitions, schema["title"]: schema}.items():
            key, made = _NOT_A_KEY.sub("_", name), _rewritten(each)
            if self.schemas.setdefault(key, made) != made:
                raise InvalidObventError(name, f"another class is the schema {key!r}: rename it")
        key = _NOT_A_KEY.sub("_", schema["title"])
        self.messages[key] = {"name": schema["title"], "payload": {"$ref": f"{_SCHEMAS}{key}"}}
        return key


def _servers(address: str | Sequence[str] | None) -> dict[str, Any]:
    """Returns the brokers of an address, or of several."""
    parts = [
        each.partition("://") for each in ([address] if isinstance(address, str) else address or ())
    ]
    found = [(scheme, host) for scheme, _, hosts in parts for host in hosts.split(",")]
    return {
        f"broker_{number}": {"host": host, "protocol": scheme}
        for number, (scheme, host) in enumerate(found, 1)
    }


def _reference(kind: str, name: str) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/{kind}/{name}"}}


def _operation(name: str, function: Any) -> dict[str, Any]:
    operation: dict[str, Any] = {"action": "receive", "channel": {"$ref": f"#/channels/{name}"}}
    if text := inspect.getdoc(function):
        first, _, rest = text.partition("\n\n")
        operation["summary"] = " ".join(first.split())
        if rest:
            operation["description"] = rest
    return operation


def _payload(found: Filter | FilterSet | Pattern | None) -> dict[str, Any]:
    """Returns the schema of notifications that one filter selects: the attributes it requires.

    It says nothing about their types, since the attribute may have further values.
    """
    if not isinstance(found, Filter | FilterSet) or len(found.filters) != 1:
        return {"type": "object"}
    (only,) = found.filters
    required = [name for name, values in only.sides.items() if not values.holds(ABSENT_KEY)]
    return {
        "type": "object",
        "properties": {
            name: {"description": str(Filter.of_sets({name: each}))}
            for name, each in only.sides.items()
        },
        "required": required,
    }


def _rewritten(schema: Any) -> Any:
    """Returns a schema of draft 2020-12 in that of AsyncAPI, draft 7, with its references."""
    if isinstance(schema, list):
        return [_rewritten(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "$ref" and isinstance(value, str):
            name = value.removeprefix(_DEFINITIONS).replace("~1", "/").replace("~0", "~")
            made[key] = _SCHEMAS + _NOT_A_KEY.sub("_", name)
        elif key == "prefixItems":
            made |= {"items": _rewritten(value), "additionalItems": False}
        elif key != "items" or "prefixItems" not in schema:
            made[key] = _rewritten(value)
    return made
