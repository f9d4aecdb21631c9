"""One subscription to a sink: as it is kept, as its owner sees it, and how it gets on."""

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from contrada.net.broker.users import ANONYMOUS
from contrada.net.wire.tokens import name_in
from contrada.service.envelope_factory import wall_clock_us


class StoredPush(msgspec.Struct, frozen=True):
    """A subscription as it is kept."""

    id: str
    token: str
    wanted: dict[str, Any]


@dataclass(slots=True)
class PushProgress:
    """How a subscription gets on since this process serves it."""

    state: Literal["pushing", "waiting"] = "pushing"
    since_us: int = field(default_factory=wall_clock_us)
    """Since when it is in this state."""
    delivered: int = 0
    dropped: int = 0
    """Which its sink has refused, or did not take in time."""
    answer: int = 0
    """The last status that its sink answered; 0 where there was no answer."""
    error: str = ""
    """Why nothing goes on, or the last event was dropped."""

    def pushing(self, answer: int, error: str = "") -> None:
        """Its sink has answered, whatever it was."""
        self._enter("pushing", answer, error)

    def waiting(self, error: str, answer: int = 0) -> None:
        """Something is to be tried again."""
        self._enter("waiting", answer, error)

    def _enter(self, state: Literal["pushing", "waiting"], answer: int, error: str) -> None:
        if state != self.state:
            self.state, self.since_us = state, wall_clock_us()
        self.answer, self.error = answer, error

    def shown(self) -> dict[str, Any]:
        """As its owner sees it."""
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

    def __init__(self, kept: StoredPush, rule: Any, turns: asyncio.Semaphore) -> None:
        """`turns` are those of its owner, for all of his sinks."""
        self.kept = kept
        self.rule = rule
        self.turns = turns
        self.progress = PushProgress()
        self.task: asyncio.Task[None] | None = None
        self.in_force: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when it is in force for the first time, or has failed to be."""
        self.renewed = asyncio.Event()
        """Set when its token has become another one."""

    @property
    def id(self) -> str:
        """By what it is called."""
        return self.kept.id

    @property
    def owner(self) -> str:
        """The user whose it is."""
        return owner_of(self.kept.token)

    @property
    def sink(self) -> str:
        """Where it goes."""
        return str(self.kept.wanted["sink"])

    @property
    def durable(self) -> str:
        """The name of its durable subscription, below its owner's."""
        return f"{self.owner}/http-{self.id}"

    def renew(self, token: str) -> None:
        """Its owner shows another token."""
        self.kept = msgspec.structs.replace(self.kept, token=token)
        self.renewed.set()

    def shown(self) -> dict[str, Any]:
        """As its owner sees it."""
        return {"id": self.id, **self.kept.wanted, "status": self.progress.shown()}


def owner_of(token: str) -> str:
    """The user whom a token names; `anonymous` of none."""
    return name_in(token) or ANONYMOUS
