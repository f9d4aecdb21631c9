"""`JwkCache`: the keys of an issuer, asked for rarely, and never from an unsafe place."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response

from contrada.errors import InputError
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.broker.jwk_cache import JwkCache, check_address
from tests.asynchronous import on_loop, until
from tests.net.issuer import EC_KEY, OTHER_RSA_KEY, Issuer, issuing, jwk

LIMITS = BrokerLimits(jwks_retry_s=30, jwks_fresh_s=100, jwks_stale_s=1_000, jwks_bytes_max=5_000)


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@asynccontextmanager
async def caching(**more: Any) -> AsyncIterator[tuple[Issuer, JwkCache, Clock]]:
    """Serves an issuer, and a cache of its keys."""
    async with issuing() as it:
        clock = Clock()
        place = more.pop("place", "")
        options: dict[str, Any] = {"limits": LIMITS, **more}
        cache = JwkCache(
            *(it.address, place, ("RS256", "ES256"), asyncio.create_task), **options, clock=clock
        )
        yield it, cache, clock


@on_loop
async def test_an_unknown_key_is_asked_for_rarely() -> None:
    """A stranger with invented keys would make a broker flood its issuer; or a new key of the
    issuer would be unknown for long.
    """
    async with caching() as (it, cache, clock):
        await asyncio.gather(*(cache.refresh() for _ in range(50)))
        assert cache.find("one", "RS256") is not None
        it.keys.append(jwk("two", OTHER_RSA_KEY))
        for _ in range(50):
            assert cache.find("two", "RS256") is None
            await cache.refresh()
        assert it.asked == {"discovery": 1, "keys": 1}
        clock.now_s += 30
        await cache.refresh()
        assert cache.find("two", "RS256") is not None
        assert it.asked["keys"] == 2


@on_loop
async def test_old_keys_are_read_again_and_withdrawn_ones_forgotten() -> None:
    """A key that an issuer has withdrawn would be valid for ever; or each token would wait."""
    async with caching() as (it, cache, clock):
        await cache.refresh()
        it.keys = [jwk("two", OTHER_RSA_KEY)]
        clock.now_s += 99
        assert cache.find("one", "RS256") is not None
        assert it.asked["keys"] == 1
        clock.now_s += 2
        assert cache.find("one", "RS256") is not None  # At once; it is read in the background.
        await until(lambda: cache.find("two", "RS256") is not None)
        assert cache.find("one", "RS256") is None


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Response(status_code=503), "answers 503"),
        (Response(status_code=302, headers={"location": "/keys"}), "answers 302"),
        (Response("no JSON"), "no JSON object"),
        (Response("[]"), "no JSON object"),
        (Response('{"issuer": "https://other.example"}'), "found the issuer"),
        (Response("x" * 6_000), "more than jwks_bytes_max"),
    ],
)
def test_an_issuer_that_fails_keeps_its_keys_for_a_while(
    answer: Response, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A short failure of an issuer would close the broker; or a long one keep stolen keys valid."""

    @on_loop
    async def ask() -> None:
        async with caching() as (it, cache, clock):
            await cache.refresh()
            it.broken = answer
            clock.now_s = 500.0
            assert cache.find("one", "RS256") is not None
            await until(lambda: said in caplog.text)
            clock.now_s = 1_001.0
            assert cache.find("one", "RS256") is None
            it.broken = None
            await cache.refresh()
            assert cache.find("one", "RS256") is not None

    ask()


@on_loop
async def test_an_issuer_without_an_answer_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    """A client with an unknown key would wait for ever."""

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hear, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    limits = BrokerLimits(jwks_wait_s=0.05)
    cache = JwkCache(address, "", ("RS256",), asyncio.create_task, limits=limits)
    async with server:
        await cache.refresh()
        assert "no answer within jwks_wait_s" in caplog.text
    await cache.refresh()
    assert cache.find("one", "RS256") is None


@on_loop
async def test_the_keys_may_be_in_a_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A broker without access to its issuer could not verify tokens."""
    path = tmp_path / "keys.json"
    async with caching(place=str(path)) as (it, cache, clock):
        await cache.refresh()
        assert "No such file" in caplog.text
        path.write_text(json.dumps({"keys": [jwk("ec", EC_KEY)]}))
        clock.now_s += 30
        await cache.refresh()
        assert cache.find("ec", "ES256") is not None
        assert cache.find(None, "ES256") is not None
        assert cache.find("ec", "RS256") is None
        path.write_text(json.dumps({"keys": [jwk("new", EC_KEY)]}))
        cache.begin_reading()
        await until(lambda: cache.find("new", "ES256") is not None)
        assert not it.asked


@pytest.mark.parametrize(
    "keys",
    [
        [],
        {},
        [3, {}, {"kty": "RSA"}, {"kty": "oct", "k": "AAAA", "kid": "one"}],
        [jwk("one", OTHER_RSA_KEY, use="enc"), jwk("two", OTHER_RSA_KEY, alg="RS512")],
        [jwk(str(each), OTHER_RSA_KEY) for each in range(3)],
    ],
    ids=["none", "no list", "others", "of another use", "many"],
)
def test_documents_without_usable_keys_are_refused(
    keys: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A secret would be taken as a key, or a key for another use; many keys would fill memory."""
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": keys}))

    @on_loop
    async def ask() -> None:
        limits = BrokerLimits(jwks_keys_max=2)
        if len(keys) == 4:
            limits = BrokerLimits()
        async with caching(place=str(path), limits=limits) as (_, cache, _):
            await cache.refresh()
            assert "no keys of" in caplog.text
            assert not cache._keys

    ask()


@pytest.mark.parametrize("address", ["https://a.example/x", "http://127.0.0.1:8/", "http://[::1]/"])
def test_safe_addresses_are_accepted(address: str) -> None:
    """An issuer could not be used."""
    check_address(address)


@pytest.mark.parametrize(
    "address",
    [
        *("", "http://a.example/", "file:///etc/passwd", "https://", "None", "https://a:x/"),
        *("https://é.example/", "https://a.example/é", "https://a b.example/", "https://a/\n"),
    ],
)
def test_unsafe_addresses_are_refused(address: str) -> None:
    """Whoever is between a broker and its issuer could give it other keys; or reading would fail
    with a fault at each token.
    """
    with pytest.raises(InputError):
        check_address(address)
