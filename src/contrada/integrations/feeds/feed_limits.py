"""`FeedLimits`: the bounds of polling feeds, and of sending and receiving documents."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedLimits:
    """Limits of the classes of this package."""

    feed_bytes_max: int = 64 * 2**20
    """Bytes of a feed, unpacked. Beyond it: the poll fails."""

    feed_entries_max: int = 100_000
    """Entries of a feed in one poll. Beyond it: the poll fails."""

    fetches_at_once: int = 8
    """Feeds that are fetched at the same time. Beyond it: the others wait."""

    redirects_max: int = 5
    """Redirects of one request for a feed. Beyond it: the poll fails."""

    wait_s: float = 30.0
    """Seconds without a byte from a feed's server. Beyond it: the poll fails."""

    fetch_s_max: float = 120.0
    """Seconds of one fetch of a feed. Beyond it: the poll fails."""

    retry_after_s_max: float = 86_400.0
    """Seconds of a server's Retry-After. Beyond it: the feed is fetched again."""

    entries_known_max: int = 20_000
    """Former entries of a feed that are known. Beyond it: the first to leave are forgotten."""

    feeds_known_max: int = 1_000
    """Feeds, and addresses, in a file of states. Beyond it: the oldest polled are forgotten."""

    state_bytes_max: int = 2**30
    """Bytes of a file of states. Beyond it: InputError, and the file stays as it is."""

    sent_at_once: int = 128
    """Notifications that a sender publishes together. Beyond it: the next ones follow."""

    names_followed_max: int = 65_536
    """Names that a subscription with patterns follows. Beyond it: the network gets only the
    constraints without patterns: more traffic, no loss."""

    names_settle_s: float = 1.0
    """Seconds of repeated queries for an unknown name. Beyond it: it is unknown."""

    names_query_again_s: float = 0.25
    """Seconds between queries for a missing service or name. Beyond it: it is queried again."""

    kinds_cached_max: int = 256
    """Kinds of documents with names cached in a client. Beyond it: the oldest are fetched again."""

    names_registered_max: int = 65_536
    """Registered names that a client remembers. Beyond it: all are registered again."""

    catch_up_s: float = 300.0
    """Seconds between a naming service's queries for records. Beyond it: it queries again."""

    catch_up_wait_s: float = 10.0
    """Seconds of waiting for other naming services. Beyond it: they are queried later."""
