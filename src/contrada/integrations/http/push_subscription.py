"""`Push`: one subscription to a sink, with its request, its stored form and its progress.

Source: CloudEvents Subscriptions API 1.0-wip §3.2.
"""

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec

from contrada.errors import InvalidValueError
from contrada.integrations.dialects import cloudevents
from contrada.integrations.http.http_responses import invalid
from contrada.integrations.http.sinks import check_headers
from contrada.net.broker.users import ANONYMOUS
from contrada.net.wire.tokens import name_in
from contrada.service.clock import wall_clock_us

_HTTP: Final = "HTTP"


class ProtocolSettings(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The HTTP headers and method of pushes."""

    headers: dict[str, str] = {}
    method: str = "POST"


class SubscriptionRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of a request for a subscription."""

    sink: str
    protocol: str = _HTTP
    protocolsettings: ProtocolSettings | None = None
    source: str | None = None
    types: list[str] | None = None
    filters: list[dict[str, Any]] | None = None
    config: dict[str, Any] | None = None
    id: str = ""

    @classmethod
    def from_json(cls, decoded: Any) -> "SubscriptionRequest":
        """Checks a decoded body. Raises InvalidValueError, RefusedRequestError."""
        try:
            request = msgspec.convert(decoded, cls)
            msgspec.json.encode(request)  # Lone surrogates could not be stored or shown.
        except (msgspec.ValidationError, UnicodeEncodeError) as error:
            raise invalid(error) from None
        if request.id:
            raise InvalidValueError(request.id, "the id of a subscription is made here")
        if request.protocol != _HTTP:
            raise InvalidValueError(request.protocol, f"expected the protocol {_HTTP!r}")
        if (settings := request.protocolsettings) is not None:
            if settings.method != "POST":
                raise InvalidValueError(settings.method, "expected the method 'POST'")
            check_headers(settings.headers)
        return request

    def rule(self) -> Any:
        """Returns the rule that selects its events. Raises RefusedRuleError, LimitError."""
        members = {"filters": self.filters or [], "source": self.source, "types": self.types}
        return cloudevents.read({key: each for key, each in members.items() if each is not None})


class StoredPush(msgspec.Struct, frozen=True):
    """A subscription in the file; `wanted` is its request."""

    id: str
    token: str
    wanted: dict[str, Any]


@dataclass(slots=True)
class PushProgress:
    """The state and counts of a subscription since this process serves it."""

    state: Literal["pushing", "waiting"] = "pushing"
    since_us: int = field(default_factory=wall_clock_us)
    """When it entered this state."""
    delivered: int = 0
    dropped: int = 0
    """Events that the sink refused, or did not accept in time."""
    answer: int = 0
    """The last status that the sink answered; 0 without an answer."""
    error: str = ""
    """The reason of the state `waiting`, or of the last drop."""

    def enter(self, state: Literal["pushing", "waiting"], answer: int = 0, error: str = "") -> None:
        """Enters a state after an answer of the sink, or an error."""
        if state != self.state:
            self.state, self.since_us = state, wall_clock_us()
        self.answer, self.error = answer, error

    def to_json(self) -> dict[str, Any]:
        """Returns the `status` that its owner sees."""
        since = datetime.fromtimestamp(self.since_us // 1_000_000, UTC)
        shown: dict[str, Any] = {
            "state": self.state,
            "since": since.isoformat().replace("+00:00", "Z"),
            "delivered": self.delivered,
            "dropped": self.dropped,
        }
        if self.answer:
            shown["answer"] = self.answer
        if self.error:
            shown["error"] = self.error
        return shown


class Push:
    """One subscription to a sink, and the task that serves it."""

    def __init__(self, stored: StoredPush, rule: Any, turns: asyncio.Semaphore) -> None:
        """`turns` bounds the concurrent pushes of its owner, over all of the owner's sinks."""
        self.stored = stored
        self.id, self.sink = stored.id, str(stored.wanted["sink"])
        self.owner = owner_of(stored.token)
        """The user of its token, also of one that replaces it."""
        self.durable = f"{self.owner}/http-{self.id}"
        """The name of its durable subscription, below that of its owner."""
        self.rule = rule
        self.turns = turns
        self.progress = PushProgress()
        self.task: asyncio.Task[None] | None = None
        self.in_force: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the subscription is in force for the first time, or has failed."""
        self.renewed = asyncio.Event()
        """Set when its token was replaced."""

    def renew(self, token: str) -> None:
        """Replaces its token with the new token of its owner."""
        self.stored = msgspec.structs.replace(self.stored, token=token)
        self.renewed.set()

    def to_json(self) -> dict[str, Any]:
        """Returns the subscription as its owner sees it."""
        return {"id": self.id, **self.stored.wanted, "status": self.progress.to_json()}


def owner_of(token: str) -> str:
    """Returns the user that a token names; `anonymous` for the empty token."""
    return name_in(token) or ANONYMOUS
