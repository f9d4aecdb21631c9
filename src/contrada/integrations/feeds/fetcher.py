"""`Fetcher`: reads feeds from files and HTTP servers.

A document is fetched only if it differs from the last one, by its ETag or Last-Modified. Its size,
also decompressed, redirects and time are bounded. A busy server that sends Retry-After is not asked
for that time.

Source: RFC 9110 §10.2.3 (Retry-After), §13.1 (conditional requests); RFC 6585 §4 (429).
"""

import asyncio
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self
from urllib.parse import urlsplit, urlunsplit

from contrada.errors import InputError, LimitError
from contrada.integrations.feeds.feed_limits import FeedLimits
from contrada.integrations.feeds.feed_states import NO_VALIDATORS, Validators
from contrada.integrations.files import FileLimits
from contrada.integrations.files.lines import open_document

if TYPE_CHECKING:  # An extra brings it, and files need it not.
    import httpx

_BUSY: Final = (429, 503)
_ACCEPTED: Final = (
    "application/atom+xml, application/rss+xml, application/feed+json, application/xml;q=0.9, "
    "*/*;q=0.5"
)


class Fetched(NamedTuple):
    """The fetched document; None if it is unchanged.

    `address` is that of the document, after redirects; "" for one from a file.
    """

    data: bytes | None
    validators: Validators = NO_VALIDATORS
    address: str = ""


class Fetcher:
    """Reads feeds; use it inside `async with`."""

    def __init__(
        self, now_s: Callable[[], float] = monotonic, *, limits: FeedLimits = FeedLimits()
    ) -> None:
        """`now_s` is a monotonic clock."""
        self._limits = limits
        self._now_s = now_s
        self._busy_until_s: dict[str, float] = {}
        self._client: httpx.AsyncClient | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def fetch(self, source: str, known: Validators = NO_VALIDATORS) -> Fetched:
        """Returns the document at a path or HTTP address.

        Raises InputError if it cannot be read now, and LimitError beyond `feed_bytes_max`.
        """
        if not is_address(source):
            limits = FileLimits(document_bytes_max=self._limits.feed_bytes_max)
            return Fetched(open_document(Path(source), limits))
        if (left_s := self._busy_until_s.get(source, 0.0) - self._now_s()) > 0:
            reason = f"not asked: its server is busy, and asks to wait {left_s:.0f} s more"
            raise InputError(shown_source(source), reason)
        self._busy_until_s.pop(source, None)
        most_s, client = self._limits.fetch_s_max, self._open_client()
        try:
            async with asyncio.timeout(most_s):
                return await self._fetch(client, source, known)
        except TimeoutError:
            reason = f"it was not read within fetch_s_max = {most_s:g} s"
            raise InputError(shown_source(source), reason) from None

    def _open_client(self) -> "httpx.AsyncClient":
        """Returns the client, which imports its library at first use."""
        if self._client is None:
            import httpx

            self._client = httpx.AsyncClient(
                follow_redirects=True,
                max_redirects=self._limits.redirects_max,
                timeout=self._limits.wait_s,
                headers={"User-Agent": "contrada", "Accept": _ACCEPTED, "Accept-Encoding": "gzip"},
            )
        return self._client

    async def _fetch(self, client: "httpx.AsyncClient", address: str, known: Validators) -> Fetched:
        import httpx

        shown = shown_source(address)
        conditions = {"If-None-Match": known.etag, "If-Modified-Since": known.last_modified}
        # A server may send a validator in another encoding, which no header can return.
        headers = {name: value for name, value in conditions.items() if value and value.isascii()}
        client.cookies.clear()  # A server could add to them at each poll.
        try:
            async with client.stream("GET", address, headers=headers) as answer:
                if answer.status_code == httpx.codes.NOT_MODIFIED and headers:
                    return Fetched(None, known)
                if answer.status_code != httpx.codes.OK:
                    if answer.status_code in _BUSY:
                        asked_s = retry_after_s(answer.headers.get("retry-after", ""))
                        wait_s = min(asked_s, self._limits.retry_after_s_max)
                        self._busy_until_s[address] = self._now_s() + wait_s
                    status = f"{answer.status_code} {answer.reason_phrase}".strip()
                    raise InputError(shown, f"the server answers {status}")
                data = await _whole(answer, shown, self._limits.feed_bytes_max)
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:  # The last is of IDNA.
            raise InputError(
                shown, f"cannot be read: {str(error) or type(error).__name__}"
            ) from None
        headers_sent = (answer.headers.get(name, "") for name in ("etag", "last-modified"))
        return Fetched(data, Validators(*headers_sent), shown_source(str(answer.url)))


def retry_after_s(header: str) -> float:
    """Returns the seconds of a Retry-After header; 0 for an invalid one."""
    header = header.strip()
    if header.isascii() and header.isdigit():
        return float(header)
    try:
        until = parsedate_to_datetime(header)
    except (ValueError, OverflowError):
        return 0.0
    seconds = (until.replace(tzinfo=until.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    return max(seconds, 0.0)


async def _whole(answer: "httpx.Response", shown: str, size_max: int) -> bytes:
    """Returns the body of a response, decompressed up to the limit."""
    packing = answer.headers.get("content-encoding", "identity").strip().lower()
    if packing not in ("identity", "gzip", "x-gzip"):
        raise InputError(shown, f"the server packs it by {packing!r}; expected gzip, or nothing")
    unpacker: Any = zlib.decompressobj(zlib.MAX_WBITS | 16) if packing != "identity" else None
    data = bytearray()
    async for piece in answer.aiter_raw():
        left = size_max + 1 - len(data)
        try:
            data += piece[:left] if unpacker is None else unpacker.decompress(piece, left)
        except zlib.error as error:
            raise InputError(shown, f"the compressed body is damaged: {error}") from None
        if len(data) > size_max:
            raise LimitError("feed_bytes_max", size_max)
    if unpacker is not None and not unpacker.eof:
        raise InputError(shown, "the compressed body ends too early")
    return bytes(data)


def is_address(source: str) -> bool:
    """Whether a source is an HTTP address, and no path."""
    return source.lower().startswith(("http://", "https://"))


def shown_source(source: str) -> str:
    """Returns a source without user name and password, to show it."""
    if not is_address(source):
        return source
    try:
        parts = urlsplit(source)
    except ValueError:  # Fetching it will raise the reason.
        return source
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
