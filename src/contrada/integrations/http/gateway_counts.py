"""What a gateway counts of itself."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from contrada.errors import ContradaError
from contrada.integrations.http.http_responses import refusal_of


@dataclass(slots=True)
class GatewayCounts:
    """Since it started: requests by way and status, events in and out, and what is open."""

    requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    events: int = 0
    """That were published."""
    delivered: int = 0
    """That were written to event streams and WebSockets."""
    dropped: Counter[str] = field(default_factory=Counter)
    """That streams lost, by reason."""
    pushed: Counter[str] = field(default_factory=Counter)
    """Events for sinks, by what became of them."""
    streams: int = 0
    websockets: int = 0

    def answered(self, way: str, status: int) -> None:
        """A request was answered."""
        self.requests[way, status] += 1

    def refused(self, way: str, error: ContradaError) -> None:
        """A request was refused."""
        self.requests[way, refusal_of(error).status] += 1

    def lost(self, before: dict[str, int], now: Any) -> dict[str, int]:
        """Counts what a stream has lost since it was asked before, and tells it."""
        new = {reason: count - before.get(reason, 0) for reason, count in now.items()}
        new = {reason: count for reason, count in new.items() if count > 0}
        self.dropped.update(new)
        before.update(now)
        return new
