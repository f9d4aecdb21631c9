"""`FeedLimits`: the bounds of polling feeds."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedLimits:
    """Limits of a `FeedPoller`, its `Fetcher` and its `FeedStates`."""

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
    """Seconds of a server's Retry-After that are obeyed. Beyond it: the feed is fetched again."""

    entries_known_max: int = 20_000
    """Former entries of a feed that are remembered. Beyond it: those that left it first are
    forgotten, and would be new again."""

    feeds_known_max: int = 1_000
    """Feeds, and addresses, in a file of states. Beyond it: those polled longest ago are
    forgotten."""

    state_bytes_max: int = 2**30
    """Bytes of a file of states. Beyond it: InputError, and the file stays as it is."""
