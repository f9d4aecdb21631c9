"""`BrokerLimits`: the bounds of a broker that a user can set."""

from dataclasses import dataclass
from typing import Final

from contrada.net.wire.connection import USUAL_LIVENESS, LivenessLimits
from contrada.service.backoff import BackoffLimits

LINK_BACKOFF: Final = BackoffLimits(longest_s=1.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLimits:
    """Limits of a `Broker`, and of the broker inside an embedded service with neighbours."""

    connections_max: int = 16_384
    """Client connections. Beyond it: a client gets the Failure `full`, and is closed."""
    backlog_max: int = 1_024
    """Pending TCP connections. Beyond it: the client's system retries after a second or more."""
    broker_bytes_max: int = 2 * 2**30
    """Bytes held for all clients and neighbours. Beyond it: the connections that hold most get the
    Failure `overloaded` and are closed."""
    client_bytes_max: int = 256 * 2**20
    """Bytes in the queues of one client. Beyond it: the publisher waits, then the newest of the
    lowest priority is dropped, counted."""
    write_buffer_bytes: int = 1024 * 1024
    """Bytes written to a client and not read. Beyond it: the connection is neither written nor
    read."""
    broker_tick_s: float = 5.0
    """Seconds between two checks for silent connections. Beyond it: they end that much later."""
    liveness: LivenessLimits = USUAL_LIVENESS
    """Time-outs of a silent connection."""
    backoff: BackoffLimits = LINK_BACKOFF
    """Waits between attempts to link a neighbour; short ones, since both networks wait for it."""
    lease_s: float = 3.0
    """With `--standby`: seconds for which a broker leads after it has renewed its lease. Beyond it:
    it ends its connections, and another one leads."""
    handover_wait_s: float = 5.0
    """How long stopping waits until queues are empty. Beyond it: the rest is lost, counted."""
    store_wait_s: float = 5.0
    """How long stopping waits for the store. Beyond it: StoreError; the rest is not written, and
    was not confirmed."""
    stop_wait_s: float = 5.0
    """How long stopping waits until written bytes are read. Beyond it: connections are cut."""
    subscriptions_per_client_max: int = 10_000
    """Subscriptions of a connection. Beyond it: refused."""
    patterns_per_client_max: int = 100
    """Pattern subscriptions of a connection. Beyond it: refused."""
    offers_per_client_max: int = 1_000
    """Advertisements of a connection. Beyond it: refused."""
    offers_per_frame_max: int = 512
    """Changes of advertisements in a frame. Beyond it: the next has the rest."""
    sources_per_client_max: int = 1_000
    """Query sources of a connection. Beyond it: refused."""
    questions_per_client_max: int = 1_000
    """Open queries of a connection. Beyond it: refused."""
    publishers_per_client_max: int = 100
    """Publisher names of a connection above best effort. Beyond it: refused."""
    connected_publishers_max: int = 100_000
    """Publisher names of all connections above best effort. Beyond it: refused."""
    readers_per_client_max: int = 1_000
    """Durable subscriptions that a connection reads. Beyond it: refused."""
    durable_filters_max: int = 1_000
    """Filters of a durable subscription. Beyond it: refused."""
    durable_requests_max: int = 4_096
    """Unanswered durable requests of a connection. Beyond it: the connection is closed."""
    record_batches_max: int = 4
    """Unanswered requests for record batches of a connection. Beyond it: refused."""
    record_batch_bytes_max: int = 2**20
    """Bytes of a record batch, unless one record is longer. Beyond it: the next has the rest."""
    reader_wait_s: float = 60.0
    """How long a subscription in memory outlives the connection of its last reader. Beyond it: it
    ends, with its records."""
    announcement_wait_s: float = 5.0
    """How long a durable operation waits for the announcement of a new neighbour. Beyond it: it
    proceeds with the known subscriptions."""
    publishes_pending_max: int = 16
    """Publications of a connection in its ingress queue. Beyond it: the connection is closed."""
    pending_bytes_max: int = 64 * 2**20
    """Bytes of publications in an ingress queue. Beyond it: the connection is closed."""
    immediate_notifications_max: int = 16
    """Notifications of a publication matched on receipt. Beyond it: a task matches them."""
    immediate_work_max: int = 4_000
    """Steps of matching on receipt. Beyond it: the match is discarded, and a task matches."""
    batch_work_max: int = 50_000
    """Steps to match a batch. Beyond it: smaller ones are matched; a single notification with
    `notification_work_max`."""
    notification_work_max: int = 100_000
    """Steps to match one notification. Beyond it: undecided subscriptions count as matching, and
    subscribers decide; counted as a conservative answer."""
    link_wait_s: float = 10.0
    """How long making a link may take. Beyond it: it is tried again later."""
    join_wait_s: float = 15.0
    """How long opening an embedded broker waits for its links. Beyond it: it opens with those that
    are up; without any, ConnectionFailedError."""
    link_credit_bytes: int = 8 * 2**20
    """Bytes of notifications in flight on a link. Beyond it: they wait in its queue."""
    link_publish_wait_s: float = 5.0
    """How long notifications wait for room in the full queue of a link. Beyond it: dropped,
    counted."""
    link_notifications_max: int = 512
    """Notifications in a frame to a neighbour; the protocol allows 512. Beyond it: the next has the
    rest."""
    link_frame_bytes: int = 1024 * 1024
    """Bytes of router messages in a frame to a neighbour. Beyond it: the next has the rest; a
    longer message is sent in parts."""
    link_message_bytes_max: int = 64 * 2**20
    """Bytes of a neighbour's message in parts. Beyond it: the link is ended."""
    link_unread_bytes_max: int = 64 * 2**20
    """Bytes written to a neighbour and not read. Beyond it: the link is ended."""
    channel_bytes_max: int = 32 * 2**20
    """Bytes in a `ReliableLinkChannel`. Beyond it: messages that are resent anyway are dropped,
    counted; at twice as much the link is ended."""
    transfer_bytes_max: int = 1024 * 1024
    """Bytes of a frame of delivery messages; one shipment may be longer. Beyond it: the next has
    the rest."""
    page_filters_max: int = 256
    """Filters of a page of exported subscriptions. Beyond it: the next has the rest."""
    page_bytes_max: int = 64 * 1024
    """Bytes of names and filters of such a page. Beyond it: the next has the rest."""
    page_numbers_max: int = 16_384
    """Numbers scanned for such a page, used or free. Beyond it: the next continues; this one may be
    empty."""
    token_checks_max: int = 256
    """Tokens with older records (scrypt) queued to be checked. Beyond it: the Failure `busy`."""
    jwks_wait_s: float = 10.0
    """Seconds to read the keys of an issuer of tokens. Beyond it: the former keys stay."""
    jwks_bytes_max: int = 256 * 1024
    """Bytes of the keys of an issuer. Beyond it: the former keys stay."""
    jwks_keys_max: int = 100
    """Keys of an issuer. Beyond it: the former keys stay."""
    jwks_retry_s: float = 30.0
    """Seconds from one reading of the keys to the next. Beyond it: an unknown key causes one."""
    jwks_fresh_s: float = 3_600.0
    """Age of the keys. Beyond it: they are read again, and are valid meanwhile."""
    jwks_stale_s: float = 24 * 3_600.0
    """Age of the keys of an issuer that is away. Beyond it: no token is valid."""
    jwt_leeway_s: float = 30.0
    """Seconds by which the clock of an issuer may differ. Beyond it: the token is not valid."""
    losses_per_s_max: int = 20_000
    """Publications a second that full queues of one user drop, each counted for each queue, over 10
    s. Beyond it: these subscriptions are cut off, as too slow."""
    rate_wait_s: float = 30.0
    """How long a publication waits for a rate in its user's quotas. Beyond it: it is refused."""
    known_tokens_max: int = 10_000
    """Older records that are known in the new form. Beyond it: the oldest is checked in its older
    form again."""
