"""`ClientLimits`: the bounds of a client that a user can set."""

from dataclasses import dataclass
from typing import Final

from contrada.net.wire.connection import USUAL_LIVENESS, LivenessLimits
from contrada.service.backoff import USUAL_BACKOFF, BackoffLimits

SEVERAL_LIVENESS: Final = LivenessLimits(ping_after_s=2.0, silent_s_max=6.0)
"""Time-outs of a silent broker where another address may have its standby."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    """Limits of a `TcpService`."""

    connect_wait_s: float = 10.0
    """How long connecting to one address may take. Beyond it: at first a ConnectionFailedError,
    later the next address is tried."""
    disconnected_wait_s: float = 10.0
    """How long an operation waits for a lost connection. Beyond it: ConnectionFailedError; nothing
    was sent."""
    retry_s_max: float = 1.5
    """Seconds between attempts to reconnect while a call, a reader or a subscription needs the
    connection; without such a need `backoff.longest_s`. Beyond it: the wait grows no more."""
    backoff: BackoffLimits = USUAL_BACKOFF
    """Waits between attempts to connect again."""
    goodbye_wait_s: float = 5.0
    """How long closing waits for the broker. Beyond it: the connection is cut."""
    client_tick_s: float = 5.0
    """Seconds between two checks for a silent broker. Beyond it: it is noticed later."""
    liveness: LivenessLimits = USUAL_LIVENESS
    """Time-outs of a silent broker. These are the default for one address; with others to try, a
    broker is pinged after 2 s, and left after 6 s without an answer."""
    credit_bytes: int = 4 * 2**20
    """Bytes delivered for one subscription and not read. Beyond it: the broker queues the rest."""
    publish_notifications_max: int = 256
    """Notifications in a publication. Beyond it: the next has the rest."""
    publish_bytes_max: int = 256 * 1024
    """Bytes after which a publication is full. Beyond it: the next has the rest."""
    publish_frames_max: int = 4
    """Unanswered publications. Beyond it: the others wait in the client."""
    durable_publications_max: int = 512
    """Unanswered durable publications. Beyond it: the others wait."""
    durable_bytes_max: int = 32 * 2**20
    """Bytes of unanswered durable publications. Beyond it: the others wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkLimits:
    """Limits of a `NetworkInspection`."""

    network_brokers_max: int = 64
    """Brokers of an inspected network. Beyond it: the others are left out, and counted."""
    broker_answer_s: float = 2.0
    """Seconds for one broker to connect and answer. Beyond it: it is shown without an answer."""
    network_answer_s: float = 6.0
    """Seconds for all brokers. Beyond it: the others are shown without an answer."""
    asked_at_once_max: int = 8
    """Brokers that one inspection asks at a time. Beyond it: the others wait."""
