"""Tokens: only the right one is valid, at a bounded cost, and records do not reveal it."""

import asyncio
import base64
import hashlib
import re

import pytest

from contrada.errors import FrameError, InvalidValueError
from contrada.net.wire import tokens
from contrada.net.wire.tokens import (
    TOKEN_CHARS_MAX,
    TokenCheck,
    is_token,
    name_in,
    new_token,
    publisher_under,
    record_of,
    record_parts,
)
from tests.asynchronous import on_loop, until


def test_a_token_is_recognized_by_its_digest_alone() -> None:
    """One user could pose as another, or a reader of the file could."""
    token, record = new_token("desk")
    other, _ = new_token("desk")
    assert re.fullmatch(r"desk\.[A-Za-z0-9_-]{43}", token), "256 bits of chance"
    assert token != other
    assert is_token(token, record)
    assert token.partition(".")[2] not in record
    assert record != record_of(token, b"another salt"), "equal tokens are not seen to be equal"
    for wrong in (other, token[:-1], token + "x", token.upper(), "", record, "desk."):
        assert not is_token(wrong, record), wrong
    renamed = "task" + token.removeprefix("desk")
    assert not is_token(renamed, record), "the name is a part of it"


@pytest.mark.parametrize(
    "record",
    [
        "",
        "x",
        "plain$16384$8$1$c2FsdA==$a2V5",
        "scrypt$16384$8$1$c2FsdA==$a2V5",  # a short key
        "scrypt$2$8$1$c2FsdA==$" + "A" * 43 + "=",  # cheap to try
        "scrypt$1073741824$8$1$c2FsdA==$" + "A" * 43 + "=",  # takes all memory
        "scrypt$16384$8$1024$c2FsdA==$" + "A" * 43 + "=",
        "scrypt$x$8$1$c2FsdA==$" + "A" * 43 + "=",
        "scrypt$16384$8$1$?$" + "A" * 43 + "=",
        "scrypt$16384$8$1$c2FsdA==$" + "A" * 43 + "=$",
        "scrypt$c2FsdA==$" + "A" * 43 + "=",
        "blake2b$16384$8$1$c2FsdA==$" + "A" * 43 + "=",
        "blake2b$c2FsdA==$a2V5",
        "blake2b$c2FsdA==$",
        "blake2b$$" + "A" * 43 + "=",  # without a salt, equal tokens have equal records
        "blake2b$" + "AAAA" * 22 + "$" + "A" * 43 + "=",  # a longer salt than the hash takes
    ],
)
def test_a_digest_has_one_form(record: str) -> None:
    """A file could make a broker take any time, or take anything for a token."""
    with pytest.raises(InvalidValueError, match="expected blake2b"):
        record_parts(record)


@pytest.mark.parametrize(
    ("token", "name"),
    [
        ("desk.secret", "desk"),
        ("a.b.secret", "a.b"),
        ("desk", ""),
        ("desk.", ""),
        (".secret", ""),
        ("", ""),
        ("desk." + "x" * (TOKEN_CHARS_MAX - 5), "desk"),
        ("desk." + "x" * (TOKEN_CHARS_MAX - 4), ""),
    ],
)
def test_a_token_names_its_owner(token: str, name: str) -> None:
    """A token would be checked against another user's record."""
    assert name_in(token) == name


def test_its_owner_publishes_under_a_name_of_his_own() -> None:
    """A client's publications would be refused, or mixed with another's."""
    first, second = publisher_under("desk.secret"), publisher_under("desk.secret")
    assert first is not None
    assert re.fullmatch(r"desk/[0-9a-f]{16}", first)
    assert first != second
    assert publisher_under("nothing") is None


def older_record_of(token: str, salt: bytes = b"0123456789abcdef") -> str:
    """Returns the record that former versions wrote."""
    key = hashlib.scrypt(token.encode(), salt=salt, n=2**14, r=8, p=1, maxmem=2**26, dklen=32)
    texts = (base64.b64encode(each).decode() for each in (salt, key))
    return "$".join(("scrypt", "16384", "8", "1", *texts))


def test_a_record_of_a_former_version_is_read() -> None:
    """All users would need new tokens with a new version of the broker."""
    token, _ = new_token("desk")
    record = older_record_of(token)
    assert is_token(token, record)
    assert not is_token(token + "x", record)
    written = (
        "scrypt$16384$8$1$MDEyMzQ1Njc4OWFiY2RlZg==$uRE96SWDK4pwbQgwtgQYh26+KIhwVgWI1qeAAgAOJUg="
    )
    assert older_record_of("desk.secret") == written


class Counted:
    """A `TokenCheck` of these records, with its fast and its slow hashes counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **limits: int) -> None:
        self.records: dict[str, str] = {}
        self.check = TokenCheck(self.records.get, **limits)
        self.hashed = {"blake2b": 0, "scrypt": 0}
        hashes = tokens._hash

        def count(kind: str, token: str, salt: bytes) -> bytes:
            self.hashed[kind] += 1
            return hashes(kind, token, salt)

        monkeypatch.setattr(tokens, "_hash", count)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch, waiting_max=3, known_max=2)


def test_a_token_is_checked_at_once_by_one_fast_hash(counted: Counted) -> None:
    """Strangers with wrong tokens would let users wait, or the time would reveal the names."""
    right, record = new_token("desk")
    wrong, _ = new_token("desk")
    counted.records["desk"] = record
    checks = {right: True, wrong: False, "nobody.1": False, "no token": False, ".": False}
    checks["x" * (TOKEN_CHARS_MAX + 1)] = False
    counted.hashed["blake2b"] = 0
    assert {each: counted.check.is_right_at_once(each) for each in checks} == checks
    assert counted.hashed == {"blake2b": len(checks), "scrypt": 0}
    del counted.records["desk"]
    assert counted.check.is_right_at_once(right) is False


@on_loop
async def test_an_older_record_is_checked_slowly_once(counted: Counted) -> None:
    """A broker would take minutes to take back its clients; or take one that is right no more."""
    own = {name: new_token(name)[0] for name in "abc"}
    counted.records.update({name: older_record_of(each) for name, each in own.items()})
    check = counted.check
    assert check.is_right_at_once(own["a"]) is None
    assert await check.is_right(own["a"])
    assert counted.hashed["scrypt"] == 1
    assert check.is_right_at_once(own["a"])
    assert check.is_right_at_once("a.wrong") is False, "strangers cost no slow hash any more"
    assert await check.is_right("b.wrong") is False
    assert check.is_right_at_once("b.wrong") is None, "a wrong one is not kept: it takes no room"
    assert await check.is_right(own["b"])
    assert await check.is_right(own["c"])
    assert [check.is_right_at_once(own[name]) for name in "abc"] == [None, True, True]
    counted.records["b"] = new_token("b")[1]
    assert check.is_right_at_once(own["b"]) is False
    del counted.records["c"]
    assert check.is_right_at_once(own["c"]) is False


@on_loop
async def test_a_token_that_changes_while_it_is_checked_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A removed user, or one with a new token, would be admitted by the old one."""
    for now in ({}, {"desk": older_record_of("desk.2")}):
        records = {"desk": older_record_of("desk.1")}

        def change(_token: str, _record: str, now: dict[str, str] = now) -> bool:
            records.clear()  # noqa: B023 - it is called within the round
            records.update(now)  # noqa: B023
            return True

        check = TokenCheck(records.get)
        with monkeypatch.context() as patch:
            patch.setattr(tokens, "is_token", change)
            assert not await check.is_right("desk.1")
        assert not check.is_right_at_once("desk.1")


@on_loop
async def test_a_flood_of_wrong_tokens_waits_in_bounded_room(counted: Counted) -> None:
    """Strangers could take all threads and memory of a broker, or exclude its users."""
    (own, other), check = (new_token(name)[0] for name in ("desk", "task")), counted.check
    new, counted.records["new"] = new_token("new")
    counted.records |= {"desk": older_record_of(own), "task": older_record_of(other)}
    assert await check.is_right(own)
    async with check._turn:  # As if one took long.
        waiting = [asyncio.ensure_future(check.is_right(f"task.{n}")) for n in range(3)]
        await until(lambda: check._waiting == 3)
        with pytest.raises(FrameError, match="try again later") as busy:
            await check.is_right(other)
        assert busy.value.code == "busy"
        assert check.is_right_at_once(own), "a user who was admitted before is admitted"
        assert check.is_right_at_once(new), "and each with a record of this version"
        waiting[0].cancel()
        await until(lambda: check._waiting == 2)
    assert await asyncio.gather(*waiting[1:]) == [False] * 2
    assert check._waiting == 0
