"""`JwkCache`: the public keys of an issuer of tokens, from its address or a file.

The keys are kept, and read again in the background when they are old, or when a token names an
unknown one. Readings have a least distance, so that strangers with invented keys cause no requests.
While the issuer is away its keys stay valid for a bounded time.

Source: RFC 7517 (JSON Web Key); OpenID Connect Discovery 1.0 §4.
"""

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlsplit

import msgspec

from contrada.errors import InputError
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.wire.address import is_loopback

if TYPE_CHECKING:  # An extra.
    from jwt import PyJWK

StartWork: TypeAlias = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]

_DISCOVERY: Final = "/.well-known/openid-configuration"
_LOG: Final = logging.getLogger(__name__)


class JwkCache:
    """The keys of one issuer, by the name of the key and the algorithm."""

    def __init__(
        self,
        issuer: str,
        place: str,
        algorithms: tuple[str, ...],
        start: StartWork,
        *,
        limits: BrokerLimits = BrokerLimits(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`place` is the file or the address of the keys; without one it is discovered at the
        issuer. `start` starts the task of a reading.
        """
        self._issuer, self._place, self._algorithms = issuer, place, algorithms
        self._start, self._limits, self._clock = start, limits, clock
        self._keys: dict[tuple[str, str], PyJWK] = {}
        self._read_s = self._tried_s = -inf
        self._reading: asyncio.Task[None] | None = None

    def find(self, name: str | None, algorithm: str) -> "PyJWK | None":
        """Returns the key with a name, or without one the only key for an algorithm; None where it
        is unknown, or too old.
        """
        age_s = self._clock() - self._read_s
        if age_s > self._limits.jwks_stale_s:
            return None
        if age_s > self._limits.jwks_fresh_s:
            self._begin()
        if name is not None:
            return self._keys.get((name, algorithm))
        fitting = [key for (_, each), key in self._keys.items() if each == algorithm]
        return fitting[0] if len(fitting) == 1 else None

    async def refresh(self) -> None:
        """Reads the keys, once for all who wait, unless they were read just now."""
        self._begin()
        if self._reading is not None:
            await asyncio.shield(self._reading)

    def begin_reading(self) -> None:
        """Begins to read the keys, also if they were read just now. The present ones stay valid."""
        self._tried_s = -inf
        self._begin()

    def _begin(self) -> None:
        is_due = self._clock() - self._tried_s >= self._limits.jwks_retry_s
        if self._reading is None and is_due:
            self._tried_s = self._clock()
            self._reading = self._start(self._read())

    async def _read(self) -> None:
        try:
            async with asyncio.timeout(self._limits.jwks_wait_s):
                self._keys = self._parse(await self._document())
            self._read_s = self._clock()
            _LOG.info("read %(count)d keys of %(issuer)s", self._fields(count=len(self._keys)))
        except TimeoutError:
            reason = f"no answer within jwks_wait_s = {self._limits.jwks_wait_s:g} s"
            _LOG.error("no keys of %(issuer)s: %(reason)s", self._fields(reason=reason))
        except InputError as error:
            _LOG.error("no keys of %(issuer)s: %(reason)s", self._fields(reason=str(error)))
        finally:
            self._reading = None

    def _fields(self, **others: Any) -> dict[str, Any]:
        return {"issuer": self._issuer, **others}

    async def _document(self) -> bytes:
        if self._place and "://" not in self._place:
            try:
                return await asyncio.to_thread(Path(self._place).read_bytes)
            except OSError as error:
                raise InputError(self._place, error.strerror or str(error)) from None
        if self._place:
            return await self._fetch(self._place)
        source = self._issuer.rstrip("/") + _DISCOVERY
        found = _decoded(source, await self._fetch(source))
        if found.get("issuer") != self._issuer:
            raise InputError(source, f"found the issuer {found.get('issuer')!r}")
        return await self._fetch(str(found.get("jwks_uri")))

    async def _fetch(self, address: str) -> bytes:
        """Returns a document; redirects are not followed. Raises InputError."""
        import httpcore

        check_address(address)
        most, read = self._limits.jwks_bytes_max, bytearray()
        try:
            async with (
                httpcore.AsyncConnectionPool(ssl_context=ssl.create_default_context()) as pool,
                pool.stream("GET", address, headers={"User-Agent": "contrada"}) as answer,
            ):
                if answer.status != HTTPStatus.OK:
                    raise InputError(address, f"the server answers {answer.status}")
                async for part in answer.aiter_stream():
                    read += part
                    if len(read) > most:
                        raise InputError(address, f"more than jwks_bytes_max = {most} bytes")
        except (httpcore.NetworkError, httpcore.ProtocolError, OSError) as error:
            raise InputError(address, str(error) or type(error).__name__) from None
        return bytes(read)

    def _parse(self, document: bytes) -> "dict[tuple[str, str], PyJWK]":
        """Returns the usable keys. Raises InputError where there is none."""
        from jwt import PyJWK
        from jwt.exceptions import PyJWTError

        source, most = self._place or self._issuer, self._limits.jwks_keys_max
        keys = _decoded(source, document).get("keys")
        if not isinstance(keys, list) or len(keys) > most:
            raise InputError(source, f"expected a list `keys` of at most jwks_keys_max = {most}")
        found: dict[tuple[str, str], PyJWK] = {}
        for each in keys:
            if not isinstance(each, dict) or each.get("use", "sig") != "sig":
                continue
            for algorithm in self._algorithms:
                if each.get("alg", algorithm) != algorithm:
                    continue
                try:
                    found[str(each.get("kid", "")), algorithm] = PyJWK(each, algorithm)
                except (PyJWTError, ValueError, TypeError):  # Of another kind, or malformed.
                    continue
        if not found:
            raise InputError(source, f"no key for {' or '.join(self._algorithms)}")
        return found


def check_address(address: str) -> None:
    """Raises InputError unless an address is one of HTTPS, or of HTTP within this machine: whoever
    changes the keys on their way can make tokens.
    """
    try:
        parts = urlsplit(address)
        is_safe = parts.scheme == "https" or (
            parts.scheme == "http" and is_loopback(parts.hostname or "")
        )
        is_safe = is_safe and bool(parts.hostname) and parts.port != 0
        is_safe = is_safe and address.isascii() and address.isprintable() and " " not in address
    except ValueError:
        is_safe = False
    if not is_safe:
        raise InputError(address, "expected https://…, or http://… of this machine")


def _decoded(source: str, document: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(document, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(source, f"no JSON object: {error}") from None
