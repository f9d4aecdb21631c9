"""Tokens: only the right one is valid, at a bounded cost, and records do not reveal it."""

import asyncio
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
    ],
)
def test_a_digest_has_one_form(record: str) -> None:
    """A file could make a broker take any time, or take anything for a token."""
    with pytest.raises(InvalidValueError, match="expected scrypt"):
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


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tokens that were looked at in full; quickly."""
    seen: list[str] = []

    def quick(token: str, record: str) -> bool:
        seen.append(token)
        return record == f"kept of {token}"

    monkeypatch.setattr(tokens, "is_token", quick)
    return seen


@on_loop
async def test_one_that_was_right_is_known_again(
    counted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker would take minutes to take back its clients; or take one that is right no more."""
    records: dict[str, str] = {"desk": "kept of desk.1"}
    check = TokenCheck(records.get)
    assert await check.is_right("desk.1")
    assert await check.is_right("desk.1")
    assert check.is_known("desk.1")
    assert counted == ["desk.1"]
    assert not await check.is_right("desk.2")
    assert not check.is_known("desk.2"), "one that is wrong is not kept: it takes no room"
    records["desk"] = "kept of desk.3"
    assert not check.is_known("desk.1")
    assert not await check.is_right("desk.1")
    del records["desk"]
    assert not await check.is_right("desk.3")
    check._known_max = 2
    for name in "abc":
        records[name] = f"kept of {name}.1"
        assert await check.is_right(f"{name}.1")
    assert [check.is_known(f"{name}.1") for name in "abc"] == [False, True, True]


@on_loop
async def test_a_token_that_changes_while_it_is_checked_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A removed user, or one with a new token, would be admitted by the old one."""
    for now in ({}, {"desk": "another"}):
        records = {"desk": "kept"}

        def change(_token: str, _record: str, now: dict[str, str] = now) -> bool:
            records.clear()  # noqa: B023 - it is called within the round
            records.update(now)  # noqa: B023
            return True

        monkeypatch.setattr(tokens, "is_token", change)
        check = TokenCheck(records.get)
        assert not await check.is_right("desk.1")
        assert not check.is_known("desk.1")


@on_loop
async def test_an_unknown_user_costs_as_much_as_a_known_one(counted: list[str]) -> None:
    """The time of the check would reveal the names of users."""
    check = TokenCheck(lambda _: None)
    for token in ("nobody.1", "no token", "x" * (TOKEN_CHARS_MAX + 1), "."):
        assert not await check.is_right(token)
    assert len(counted) == 4


@on_loop
async def test_a_flood_of_wrong_tokens_waits_in_bounded_room(
    counted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Strangers could take all threads and memory of a broker, or exclude its users."""
    check = TokenCheck({"desk": "kept of desk.1"}.get, waiting_max=3)
    assert await check.is_right("desk.1")
    async with check._turn:  # As if one took long.
        waiting = [asyncio.ensure_future(check.is_right(f"desk.{n}")) for n in range(2, 5)]
        await until(lambda: check._waiting == 3)
        with pytest.raises(FrameError, match="come again later") as busy:
            await check.is_right("desk.9")
        assert busy.value.code == "busy"
        assert await check.is_right("desk.1"), "who was known goes on"
        waiting[0].cancel()
        await until(lambda: check._waiting == 2)
    assert await asyncio.gather(*waiting[1:]) == [False] * 2
    assert check._waiting == 0
