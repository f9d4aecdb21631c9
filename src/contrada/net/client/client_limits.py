"""`ClientLimits`: the bounds of a client that a user can set."""

from dataclasses import dataclass

from contrada.net.wire.connection import USUAL_LIVENESS, LivenessLimits
from contrada.service.backoff import USUAL_BACKOFF, BackoffLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    """Limits of a `TcpService`."""

    connect_wait_s: float = 10.0
    """How long connecting to one address may take. Beyond it: the attempt has failed: at first a
    ConnectionFailedError, later the next address is tried."""
    disconnected_wait_s: float = 10.0
    """How long an operation waits for a lost connection. Beyond it: ConnectionFailedError; nothing
    was sent."""
    retry_s_max: float = 1.5
    """Seconds between attempts to reconnect while a call, a reader or a subscription needs the
    connection. Beyond it: the wait grows no more; without such a need, it grows to
    `backoff.longest_s`."""
    backoff: BackoffLimits = USUAL_BACKOFF
    """Waits between attempts to connect again."""
    goodbye_wait_s: float = 5.0
    """How long closing waits for the broker. Beyond it: the connection is cut."""
    client_tick_s: float = 5.0
    """Seconds between two checks for a silent broker. Beyond it: it is noticed that much later."""
    liveness: LivenessLimits = USUAL_LIVENESS
    """Time-outs of a silent broker."""
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
