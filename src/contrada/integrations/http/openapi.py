"""`openapi_json`: the HTTP port as a document of OpenAPI 3.1, which `/openapi.json` answers.

`OPERATIONS` describes each path and method of the port once; msgspec makes the schemas of bodies
and answers from their classes. The document is the same for each port and user: it holds no address
and no name of this broker.

Source: the OpenAPI Specification 3.1.0.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from http import HTTPStatus
from typing import Any, Final, get_args

import msgspec

from contrada.delivery.queue_messages import PEEKED_MAX, QueuePage, QueueState
from contrada.integrations.files.subscription_files import DIALECTS
from contrada.integrations.http.event_ingest import BATCH, STRUCTURED
from contrada.integrations.http.push_service import SubscriptionRequest
from contrada.net.wire.address import PATH_DEFAULT
from contrada.service import WhenFull

OPENAPI_VERSION: Final = "3.1.0"
INTERFACE_VERSION: Final = "1.0"
"""The version of the interface; a change that clients must follow raises it."""

_JSON: Final = "application/json"
_STREAM: Final = "text/event-stream"
_TEXT: Final = "text/plain"
_REFERENCE: Final = "#/components/schemas/{name}"
_TYPES: Final = (QueuePage, QueueState, SubscriptionRequest)

Schema = dict[str, Any]


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One method of a path."""

    summary: str
    needs: str = ""
    """The right of the token's user."""
    parameters: Sequence[Schema] = ()
    bodies: Mapping[str, Schema] = {}
    """Schemas of the body by media type."""
    status: int = HTTPStatus.OK
    answers: Mapping[str, Schema] = {}
    """Schemas of the answer by media type; empty without a body."""
    errors: Sequence[int] = ()
    """Statuses of refusals, beside those of its parameters, body and token."""
    is_open: bool = False
    """Whether it needs no token, and reads none."""

    def to_json(self, path: str, method: str) -> Schema:
        """Returns its object of OpenAPI."""
        statuses = {HTTPStatus.FORBIDDEN, HTTPStatus.MISDIRECTED_REQUEST, *self.errors}
        if not self.is_open:
            statuses |= _TOKEN_ERRORS
        if self.parameters:
            statuses.add(HTTPStatus.BAD_REQUEST)
        if self.bodies:
            statuses |= _BODY_ERRORS
        answer: Schema = {"description": HTTPStatus(self.status).phrase}
        if self.answers:
            answer["content"] = _content(self.answers)
        responses = {str(int(self.status)): answer}
        for status in sorted(statuses):
            responses[str(int(status))] = {"$ref": f"#/components/responses/{int(status)}"}
        shown: Schema = {
            "operationId": f"{method.lower()} {path}",
            "summary": self.summary,
            "tags": [path.split("/")[1]],
            "parameters": [*self.parameters],
            "responses": responses,
            "security": [] if self.is_open else [{"token": []}, {}],
        }
        if self.needs:
            shown["description"] = f"The user of the token needs {self.needs}."
        if self.bodies:
            shown["requestBody"] = {"required": True, "content": _content(self.bodies)}
        return shown


_TOKEN_ERRORS: Final = {
    *(HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN),
    *(HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE),
}
_BODY_ERRORS: Final = {
    *(HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
}
_REASONS: Final = {
    HTTPStatus.BAD_REQUEST: "A malformed parameter, body, filter or event, whose `index` is given.",
    HTTPStatus.UNAUTHORIZED: "The token is unknown or malformed, or there is none.",
    HTTPStatus.FORBIDDEN: "The user, or the page of another origin, has no permission. `refused` "
    "has the indices of forbidden events; the others are published.",
    HTTPStatus.NOT_FOUND: "There is no such thing of this user.",
    HTTPStatus.REQUEST_TIMEOUT: "The body did not arrive in time.",
    HTTPStatus.CONFLICT: "The durable subscription does not exist here, or is in another state.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "The body has too many bytes.",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "The body is no CloudEvent, or is compressed.",
    HTTPStatus.MISDIRECTED_REQUEST: "On loopback: the header Host names another host.",
    HTTPStatus.TOO_MANY_REQUESTS: "A quota is exceeded, or such a request of the user runs.",
    HTTPStatus.BAD_GATEWAY: "The broker broke the protocol.",
    HTTPStatus.SERVICE_UNAVAILABLE: "The broker has no room, no store, or stops. `Retry-After` "
    "may have the time of the next attempt.",
    HTTPStatus.LOOP_DETECTED: "The event comes from a sink of this port.",
}


def _content(schemas: Mapping[str, Schema]) -> Schema:
    return {media: {"schema": schema} for media, schema in schemas.items()}


def _text(*values: str) -> Schema:
    return {"type": "string", "enum": [*values]} if values else {"type": "string"}


def _integer(least: int = 0) -> Schema:
    return {"type": "integer", "minimum": least}


def _object(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    properties = {**required, **(optional or {})}
    return {"type": "object", "properties": properties, "required": [*required]}


def _array(of: Schema) -> Schema:
    return {"type": "array", "items": of}


def _named(name: str) -> Schema:
    return {"$ref": _REFERENCE.format(name=name)}


def _type(of: type) -> Schema:
    return _named(of.__name__)


def _parameter(
    name: str, description: str, schema: Schema | None = None, *, place: str = "query", **more: Any
) -> Schema:
    shown = {"name": name, "in": place, "description": description, "schema": schema or _text()}
    return {**shown, **more}


_NAME: Final = _parameter(
    "name",
    "The name of the durable subscription.",
    {"type": "string", "minLength": 1},
    required=True,
)
_POSITION: Final = _parameter("position", "The position of the record.", _integer(), required=True)
_ID: Final = _parameter("id", "The id of the subscription.", place="path", required=True)
_IN_DURABLE: Final = "the name in `durable`"
_PUBLISHED: Final = _object({"published": _integer()})
_PEEKED: Final = _object(
    {"position": _integer(1), "attempt": _integer(), "event": _named("CloudEvent")}
)
_ANY: Final[Schema] = {"type": "object"}
_STREAM_PARAMETERS: Final = (
    _parameter("filter", "The filter, pattern or rule; optional for an existing `durable`."),
    _parameter("dialect", "The language of the filter.", _text(*DIALECTS)),
    _parameter("durable", "The name of a durable subscription, created with the first filter."),
    _parameter("when_full", "The policy for a slow reader.", _text(*get_args(WhenFull))),
    _parameter("form", "CloudEvents, or notifications.", _text("event", "notification")),
    _parameter("acknowledge", "The acknowledgement of records.", _text("auto", "manual")),
    _parameter("Last-Event-ID", "The position to resume after.", _integer(), place="header"),
)
_EVENT_HEADERS: Final = tuple(
    _parameter(f"ce-{name}", "A context attribute, in binary mode.", place="header")
    for name in ("specversion", "id", "source", "type")
)


def _queue(summary: str, counted: str, *parameters: Schema, needs: str = _IN_DURABLE) -> Operation:
    return Operation(
        summary=summary,
        needs=needs,
        parameters=(_NAME, *parameters),
        answers={_JSON: _object({counted: _integer()})},
        errors=(HTTPStatus.CONFLICT,),
    )


def _websocket(summary: str, *parameters: Schema, is_open: bool = False) -> Operation:
    upgrade = _parameter("Upgrade", "websocket", _text("websocket"), place="header")
    return Operation(
        summary=summary,
        parameters=(upgrade, *parameters),
        status=HTTPStatus.SWITCHING_PROTOCOLS,
        errors=(HTTPStatus.NOT_FOUND,),
        is_open=is_open,
    )


OPERATIONS: Final[dict[str, dict[str, Operation]]] = {
    "/events": {
        "POST": Operation(
            summary="Publish CloudEvents: binary, structured, a batch, or plain JSON.",
            needs="`publish` for each event",
            parameters=_EVENT_HEADERS,
            bodies={
                STRUCTURED: _named("CloudEvent"),
                BATCH: _array(_named("CloudEvent")),
                _JSON: {},
                "*/*": {},
            },
            status=HTTPStatus.ACCEPTED,
            answers={_JSON: _PUBLISHED},
            errors=(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, HTTPStatus.LOOP_DETECTED),
        ),
        "OPTIONS": Operation(
            summary="Answer the web-hook handshake of a sender.",
            parameters=(_parameter("WebHook-Request-Origin", "The sender.", place="header"),),
        ),
    },
    "/subscribe": {
        "GET": Operation(
            summary="Subscribe, with server-sent events.",
            needs="`subscribe` for the filter, and the name in `durable`",
            parameters=_STREAM_PARAMETERS,
            answers={_STREAM: _text()},
            errors=(HTTPStatus.CONFLICT,),
        ),
        "HEAD": Operation(summary="Answer as for a stream, which does not begin."),
    },
    "/ws": {
        "GET": _websocket(
            "Open a WebSocket for subscriptions and publications as JSON messages.",
            _parameter(
                "Sec-WebSocket-Protocol",
                "`contrada`, and `contrada.token.` with a token in base64url.",
                place="header",
            ),
        )
    },
    PATH_DEFAULT: {
        "GET": _websocket(
            "Open a WebSocket for a client or neighbour of the broker itself.", is_open=True
        )
    },
    "/subscriptions": {
        "POST": Operation(
            summary="Begin a subscription that pushes events to a sink.",
            needs="`sinks`, `subscribe` for the filter, and the own name in `durable`",
            bodies={_JSON: _type(SubscriptionRequest)},
            status=HTTPStatus.CREATED,
            answers={_JSON: _named("Push")},
            errors=(HTTPStatus.CONFLICT,),
        ),
        "GET": Operation(
            summary="List the own subscriptions to sinks.", answers={_JSON: _array(_named("Push"))}
        ),
    },
    "/subscriptions/{id}": {
        "GET": Operation(
            summary="Show a subscription to a sink.",
            parameters=(_ID,),
            answers={_JSON: _named("Push")},
            errors=(HTTPStatus.NOT_FOUND,),
        ),
        "DELETE": Operation(
            summary="End a subscription to a sink, with its events.",
            parameters=(_ID,),
            status=HTTPStatus.NO_CONTENT,
            errors=(HTTPStatus.NOT_FOUND,),
        ),
    },
    "/queues": {
        "GET": Operation(
            summary="List a page of queues, or the counts of one.",
            needs="the name in `durable`, or `inspect`",
            parameters=(
                {**_NAME, "required": False},
                _parameter("after", "The `next` of the page before."),
            ),
            answers={_JSON: {"anyOf": [_type(QueuePage), _type(QueueState)]}},
            errors=(HTTPStatus.CONFLICT,),
        ),
        "DELETE": Operation(
            summary="End a durable subscription, with its records.",
            needs=_IN_DURABLE,
            parameters=(_NAME,),
            status=HTTPStatus.NO_CONTENT,
            errors=(HTTPStatus.CONFLICT,),
        ),
    },
    "/queues/records": {
        "GET": Operation(
            summary="Show records; nothing is handed out.",
            needs=_IN_DURABLE,
            parameters=(
                _NAME,
                _parameter("from", "The first position.", _integer()),
                _parameter("count", f"At most {PEEKED_MAX} are answered.", _integer(1)),
            ),
            answers={
                _JSON: _object(
                    {
                        "records": _array(_PEEKED),
                        "unreadable": {"type": "object", "additionalProperties": _text()},
                        "next": _integer(),
                    }
                )
            },
            errors=(HTTPStatus.CONFLICT,),
        ),
        "DELETE": _queue("Acknowledge all records.", "purged"),
    },
    "/queues/redrive": {
        "POST": _queue(
            "Move dead letters back to their subscription.",
            "moved",
            _parameter("to", "Another durable subscription."),
            needs="both names in `durable`",
        )
    },
    "/queues/release": {
        "POST": _queue("Take the records of readers that hang, for any reader.", "released")
    },
    "/queues/acknowledgements": {
        "POST": _queue(
            "Acknowledge records of a stream with acknowledge=manual, up to a position.",
            "acknowledged",
            _POSITION,
        )
    },
    "/queues/nacks": {
        "POST": _queue(
            "Have a record of such a stream delivered again, to any reader.", "nacked", _POSITION
        )
    },
    "/metrics": {
        "GET": Operation(
            summary="Counts and latencies, for Prometheus.",
            needs="`inspect`",
            answers={_TEXT: _text()},
        )
    },
    "/healthz": {
        "GET": Operation(
            summary="Answer 200 while the port serves, 503 while it stops.",
            answers={_JSON: _object({"status": _text("ok")})},
            errors=(HTTPStatus.SERVICE_UNAVAILABLE,),
            is_open=True,
        )
    },
    "/openapi.json": {
        "GET": Operation(summary="This document.", answers={_JSON: _ANY}, is_open=True)
    },
}
"""Each operation by path and method. Those of the console's pages change with them: they are left
out."""


def _schemas() -> Schema:
    _, schemas = msgspec.json.schema_components(_TYPES, ref_template=_REFERENCE)
    status = _object(
        {
            "state": _text("pushing", "waiting"),
            "since": {"type": "string", "format": "date-time"},
            "delivered": _integer(),
            "dropped": _integer(),
        },
        {"answer": _integer(), "error": _text()},
    )
    own = {
        "Error": _object(
            {"error": _text()},
            {"published": _integer(), "refused": _array(_integer()), "index": _integer()},
        ),
        "CloudEvent": {"not": {"required": ["data", "data_base64"]}}
        | _object(
            {
                **{name: {"type": "string", "minLength": 1} for name in ("id", "source", "type")},
                "specversion": _text("1.0"),
            },
            {"data": {}, "data_base64": _text(), "time": {"type": "string", "format": "date-time"}},
        ),
        "Push": _object(
            {"id": _text(), "sink": _text(), "status": status},
            {"source": _text(), "types": _array(_text()), "filters": _array(_ANY)},
        ),
    }
    return {**schemas, **own}


@cache
def openapi_json() -> bytes:
    """Returns the document."""
    error = {_JSON: _named("Error")}
    document = {
        "openapi": OPENAPI_VERSION,
        "info": {
            "title": "The HTTP port of a Contrada broker",
            "version": INTERFACE_VERSION,
            "description": "CloudEvents over HTTP, event streams, queues and sinks.",
        },
        "servers": [{"url": "/"}],
        "paths": {
            path: {
                method.lower(): operation.to_json(path, method)
                for method, operation in methods.items()
            }
            for path, methods in OPERATIONS.items()
        },
        "components": {
            "schemas": _schemas(),
            "responses": {
                str(int(status)): {"description": reason, "content": _content(error)}
                for status, reason in _REASONS.items()
            },
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "NAME.SECRET of a user; without it the user is `anonymous`. "
                    "An EventSource may send it as `access_token` in the query.",
                }
            },
        },
    }
    return msgspec.json.encode(document)
