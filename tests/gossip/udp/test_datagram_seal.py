"""Seals: only by the group, accepted once, safe with clock jumps, and in bounded memory."""

import itertools
import stat
from pathlib import Path

import pytest

from contrada.errors import InputError
from contrada.gossip.udp import GroupKey, datagram_seal
from contrada.gossip.udp.datagram_seal import GroupSeal, Unsealed

KEY = GroupKey(bytes(32))
NOW_US = 1_700_000_000_000_000
AT = "127.0.0.1:7656"


def seal(agreed: bytes = b"", *, number: int = 0, key: GroupKey = KEY) -> GroupSeal:
    draws = itertools.count(number)
    return GroupSeal(key, agreed, lambda size: next(draws).to_bytes(size, "big"))


def test_a_sealed_datagram_opens_once() -> None:
    """A group would not hear itself, or take a replay for news."""
    one, other = seal(), seal(number=1)
    datagram = one.seal(b"content", AT, NOW_US)
    assert other.open(datagram, AT, NOW_US, 0) == Unsealed(bytes(8), b"content")
    assert other.open(datagram, AT, NOW_US, 0) == datagram_seal.REPLAYED
    assert b"content" not in datagram


def test_every_cut_and_every_flipped_bit_is_refused() -> None:
    """A man in the middle could change messages."""
    datagram = seal().seal(b"some content", AT, NOW_US)
    opener = seal(number=1)
    for size in range(len(datagram)):
        assert isinstance(opener.open(datagram[:size], AT, NOW_US, 0), str)
    for bit in range(len(datagram) * 8):
        changed = bytearray(datagram)
        changed[bit // 8] ^= 1 << bit % 8
        assert isinstance(opener.open(bytes(changed), AT, NOW_US, 0), str)
    assert opener.senders == 0
    assert isinstance(opener.open(datagram, AT, NOW_US, 0), Unsealed)


def test_other_keys_parameters_and_places_are_others() -> None:
    """A holder of another key or parameters would be heard; or a datagram for another receiver."""
    datagram = seal().seal(b"", AT, NOW_US)
    foreign = seal(key=GroupKey(b"1" * 32))
    assert foreign.open(datagram, AT, NOW_US, 0) == datagram_seal.WRONG_GROUP
    assert seal(b"a = 9").open(datagram, AT, NOW_US, 0) == datagram_seal.WRONG_GROUP
    assert seal().open(datagram, "127.0.0.1:7657", NOW_US, 0) == datagram_seal.FORGED


def test_clocks_too_far_apart_are_refused() -> None:
    """A recorded datagram could be sent to a newcomer long after."""
    datagram = seal().seal(b"", AT, NOW_US)
    for apart in (
        datagram_seal.CLOCK_APART_MAX_US + 1,
        -datagram_seal.CLOCK_APART_MAX_US - 1,
        2**62,
    ):
        assert seal().open(datagram, AT, NOW_US + apart, 0) == datagram_seal.CLOCK
    assert isinstance(
        seal().open(datagram, AT, NOW_US + datagram_seal.CLOCK_APART_MAX_US, 0), Unsealed
    )


def test_a_clock_that_jumps_lets_no_replay_in() -> None:
    """After a clock is set back, forgotten datagrams would be accepted, or known senders
    refused.
    """
    one, late, opener = seal(), seal(number=7), seal(number=1)
    first = one.seal(b"", AT, NOW_US)
    assert isinstance(opener.open(first, AT, NOW_US, 0), Unsealed)
    silent_us = datagram_seal.SENDER_SILENT_US + 1
    then = late.seal(b"", AT, NOW_US + silent_us)
    assert isinstance(opener.open(then, AT, NOW_US + silent_us, silent_us), Unsealed)
    assert opener.senders == 1  # The first was forgotten.
    assert (
        opener.open(first, AT, NOW_US, silent_us) == datagram_seal.CLOCK
    )  # And is not taken again.
    again = late.seal(b"", AT, NOW_US)
    assert isinstance(opener.open(again, AT, NOW_US, silent_us), Unsealed)  # A known sender.


def test_senders_are_bounded() -> None:
    """Memory would grow with each sender; or new ones would never be heard."""
    opener = seal(number=99)
    opener._senders_max = 3
    for number in range(3):
        assert isinstance(
            opener.open(seal(number=number).seal(b"", AT, NOW_US), AT, NOW_US, 0), Unsealed
        )
    fourth = seal(number=3).seal(b"", AT, NOW_US)
    assert opener.open(fourth, AT, NOW_US, 1) == datagram_seal.SENDERS_FULL
    later = NOW_US + datagram_seal.SENDER_SILENT_US + 2
    fifth = seal(number=4).seal(b"", AT, later)
    assert isinstance(opener.open(fifth, AT, later, datagram_seal.SENDER_SILENT_US + 2), Unsealed)
    assert opener.senders == 1


def test_no_nonce_is_repeated() -> None:
    """One key stream for two datagrams would give both away."""
    one = seal()
    one._sealed = (1 << 32) - 1
    nonces = {one.seal(b"", AT, NOW_US)[5:17] for _ in range(3)}
    assert len(nonces) == 3
    assert sorted(nonces)[1][:8] == (1).to_bytes(8, "big")


def test_a_key_is_a_file_of_one_line(tmp_path: Path) -> None:
    """A key could be read by others, be written over, or be shown by mistake."""
    path = tmp_path / "group.key"
    key = GroupKey.new()
    key.write(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert GroupKey.of_file(path) == key
    assert repr(key.secret) not in repr(key)
    with pytest.raises(InputError, match="there already"):
        key.write(path)
    for bad in ("", "contrada-gossip-key-1:AAAA", key.text[22:], key.text + "A", "x" * 9_999):
        path.write_text(bad)
        with pytest.raises(InputError, match="contrada gossip key"):
            GroupKey.of_file(path)
    with pytest.raises(InputError, match="No such file"):
        GroupKey.of_file(tmp_path / "nowhere")
    with pytest.raises(InputError, match="expected 32"):
        GroupKey(b"short")
