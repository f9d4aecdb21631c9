"""`GatewayLimits`: the bounds and time-outs of the HTTP port of a broker."""

from dataclasses import dataclass

from contrada.net.client.client_limits import NetworkLimits
from contrada.service.backoff import USUAL_BACKOFF, BackoffLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayLimits:
    """Limits of a `Gateway`."""

    # Connections and heads of requests
    http_connections_max: int = 10_000
    """Connections of an HTTP port. Beyond it: 503, and the connection is closed."""
    head_wait_s: float = 20.0
    """Seconds for a head, and for a pause between requests. Beyond it: 408 to an incomplete head,
    and the connection is closed."""
    head_bytes_max: int = 32 * 1024
    """Bytes of the head of a request or a chunk, and of trailers. Beyond it: 431 or 400, and the
    connection is closed."""
    headers_max: int = 100
    """Headers of a request. Beyond it: 431, and the connection is closed."""
    sent_bytes_max: int = 128 * 1024
    """Bytes in the socket's send buffer of one client. Beyond it: the writer waits."""
    unsent_wait_s: float = 90.0
    """Seconds for a client to read its answers. Beyond it: the connection is cut."""
    http_stop_wait_s: float = 5.0
    """Seconds that a stopping port waits for running requests, and for clients to read their
    answers. Beyond it: cancelled, or cut."""

    # Bodies
    http_body_bytes_max: int = 4 * 2**20
    """Bytes of the body of a request. Beyond it: 413, and nothing is published."""
    http_bodies_bytes_max: int = 64 * 2**20
    """Bytes of all bodies that are read or published. Beyond it: 503 until bytes are released."""
    body_wait_s: float = 30.0
    """Seconds for the body of a request. Beyond it: 408, and the connection is closed."""
    http_events_max: int = 10_000
    """Events of one request or WebSocket message. Beyond it: refused."""
    filter_characters_max: int = 20_000
    """Characters of a filter or rule in a request. Beyond it: refused."""
    trial_bytes_max: int = 256 * 1024
    """Bytes of a trial in the console's playground. Beyond it: 413."""
    trials_max: int = 64
    """Trials that run or wait, one of each user. Beyond it: 503."""
    questions_per_user_max: int = 8
    """Open questions of one user in the console. Beyond it: 429."""
    figures_max: int = 1
    """Figures that the console simulates at a time, each in a process. Beyond it: 503."""
    figure_wait_s: float = 60.0
    """Seconds in which a figure is simulated. Beyond it: its process is ended, and the points so
    far are the answer."""

    # The network in the console
    network: NetworkLimits = NetworkLimits()
    """How much of a network one look at it reads."""
    network_addresses_max: int = 256
    """Other brokers with open connections of viewers. Beyond it: the broker is not shown."""

    # Tokens
    gateway_tokens_max: int = 1_000
    """Tokens with a connection to the broker. Beyond it: an unused one is closed, or 503."""
    gateway_idle_s: float = 60.0
    """Seconds that an unused connection to the broker is kept. Beyond it: it is closed."""
    gateway_unproven_max: int = 256
    """Tokens that the broker has not accepted yet. Beyond it: 503."""
    gateway_opening_max: int = 16
    """Connections opened at a time for unproven tokens. Beyond it: the others wait."""
    gateway_known_max: int = 10_000
    """Tokens known to be valid. Beyond it: the least recently used is unproven again."""

    # Event streams
    stream_replay_max: int = 10_000
    """Written events of a durable subscription that are kept for `Last-Event-ID`. Beyond it: the
    oldest is deleted, and reported as dropped."""
    stream_quiet_s: float = 15.0
    """Seconds of silence. Beyond it: a comment is written, so that proxies keep the connection."""
    stream_wait_s: float = 60.0
    """Seconds of a write to a client that does not read. Beyond it: the connection is cut."""
    stream_write_bytes: int = 32 * 1024
    """Bytes of queued events in one write. Beyond it: the next has the rest."""
    stream_retry_ms: int = 2_000
    """Milliseconds that a stream asks browsers to wait. Beyond it: a browser reconnects."""

    # WebSockets
    websocket_message_bytes_max: int = 2**20
    """Bytes of a WebSocket message, and half of the bytes before its end. Beyond it: closed with
    code 1009, or cut."""
    websocket_subscriptions_max: int = 100
    """Subscriptions of one WebSocket. Beyond it: refused."""
    ping_s: float = 20.0
    """Seconds between pings of a WebSocket, and for the pong. Beyond it: it is closed."""

    # Subscriptions to sinks
    pushes_per_token_max: int = 100
    """Subscriptions to sinks of one user. Beyond it: refused."""
    pushes_max: int = 5_000
    """Subscriptions to sinks of a gateway. Beyond it: refused."""
    pushes_at_once_per_user_max: int = 20
    """Concurrent pushes of one user, each over a connection. Beyond it: the next waits."""
    push_connections_max: int = 200
    """Connections to sinks. Beyond it: an event waits for one."""
    push_wait_s: float = 20.0
    """Seconds for a sink to answer, with connecting. Beyond it: the event is pushed again."""
    push_answer_bytes_max: int = 16 * 1024
    """Bytes of a sink's answer that are read. Beyond it: its connection is closed."""
    push_backoff: BackoffLimits = USUAL_BACKOFF
    """Waits between attempts to push one event, and to read a subscription again."""
    push_s_max: float = 24 * 3_600.0
    """Seconds of attempts to push one event. Beyond it: dropped, counted."""
    push_retry_after_s_max: float = 3_600.0
    """Seconds of a sink's `Retry-After`. Beyond it: the event is pushed again."""
    push_refused_s: float = 60.0
    """Seconds that a refused token waits for a new one. Beyond it: its subscription tries again."""
    push_records_max: int = 100_000
    """Events that are kept for a sink. Beyond it: the oldest are dropped, counted."""
    push_record_bytes_max: int = 256 * 2**20
    """Bytes of these events. Beyond it: the oldest are dropped, counted."""
