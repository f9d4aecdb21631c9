"""Signatures are valid for the signed content, on every path, and for nothing else."""

import base64
import pickle
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from contrada.errors import (
    InvalidNotificationError,
    InvalidValueError,
    LimitError,
    NotVerifiedError,
)
from contrada.matching.packed import BUNDLE_MIN, Bundle
from contrada.model import Envelope, Notification, from_json, from_msgpack, to_json, to_msgpack
from contrada.model.codec import notification_to_read
from contrada.service.security.signatures import (
    CHANGED,
    KEY_OF_ANOTHER,
    REPEATED,
    SIGNED_PUBLISHER_BYTES_MAX,
    TOO_LATE,
    UNKNOWN_KEY,
    UNSIGNED,
    Signer,
    Verifier,
    VerifierLimits,
    signed_bytes,
)
from tests import strategies
from tests.matching.engines import needs_native
from tests.service.security.signing_keys import DESK, FEED, FORGER, STRANGER, VERIFIER, private_key

STAMPED: Final = Envelope("desk.4f0c.17", "desk", 17, 1_700_000_000_000_000)
QUOTE: Final = Notification(
    {"symbol": "DIS", "price": 61.5, "tags": ["b", "a"]},
    body=b"as it came",
    content_type="text/plain",
    envelope=STAMPED,
)
SIGNED: Final = DESK.signed(QUOTE)

WAYS: Final[dict[str, Callable[[Notification], Any]]] = {
    "as it is": lambda of: of,
    "msgpack": lambda of: from_msgpack(to_msgpack(of)),
    "read at once": lambda of: notification_to_read(to_msgpack(of)),
    "JSON": lambda of: from_json(to_json(of)),
    "pickled": lambda of: pickle.loads(pickle.dumps(of)),
    "made anew": lambda of: Notification.from_attributes(
        dict(reversed([*of.attributes.items()])), of.body, of.content_type, of.envelope
    ),
}
"""The forms in which notifications are stored and sent."""


def reason(of: Notification, verifier: Verifier = VERIFIER) -> str:
    """The reason why a notification is not verified; empty if it is."""
    try:
        verifier.check(of)
    except NotVerifiedError as error:
        return error.reason
    return ""


envelopes: Final = st.builds(
    Envelope,
    id=st.text(st.characters(codec="utf-8"), min_size=1, max_size=20),
    publisher=st.just("desk"),
    sequence=st.integers(0, 2**63 - 1),
    time_us=st.integers(-(2**40), 2**50),
    ttl_us=st.none() | st.integers(0, 2**63 - 1),
    priority=st.integers(0, 9),
    delivery=st.sampled_from(["best-effort", "certified", "reliable fifo"]),
)
published: Final = st.builds(
    Notification.with_envelope,
    strategies.notifications(strategies.values(), strategies.names),
    envelopes,
)


@given(published)
def test_a_signature_holds_whatever_way_it_took(of: Notification) -> None:
    """A subscriber would refuse a notification from a store, or in another form."""
    signed = DESK.signed(of)
    assert VERIFIER.check(signed) == of.envelope.id
    for name, way in WAYS.items():
        found = way(signed)
        assert found.is_identical(signed), name
        assert VERIFIER.check(found) == of.envelope.id, name
        assert signed_bytes(found, "") == signed_bytes(of, ""), name


def test_what_is_signed_is_what_the_page_says() -> None:
    """A verifier in another language would have no reference."""
    packed = (
        b"contrada notification signature 1\0\x9a\xa1i\xa4desk\x01\x00\xc0\x04\xabbest-effort"
        b"\x92\x92\xa1a\x92\x92\x04\x05\x92\x06\xc4\x01x\x92\xa1b\x91\x92\x02\xc3\xa0\xc4\x00"
    )
    envelope = Envelope("i", "desk", 1, 0)
    assert (
        signed_bytes(Notification({"b": True, "a": ["x", 5.0]}, envelope=envelope), "i") == packed
    )


CHANGES: Final[dict[str, Callable[[Notification], Notification]]] = {
    "value": lambda of: _with(of, price=61.25),
    "one of several": lambda of: _with(of, tags=["a", "c"]),
    "domain": lambda of: _with(of, price="61.5"),
    "more": lambda of: _with(of, venue="X"),
    "less": lambda of: _with(of, price=[]),
    "name": lambda of: _with(of, price=[], Price=61.5),
    "mark": lambda of: Notification.with_marks(
        of.attributes, ["Q"], body=of.body, content_type=of.content_type, envelope=of.envelope
    ),
    "body": lambda of: Notification(
        of.attributes, body=b"As it came", content_type=of.content_type, envelope=of.envelope
    ),
    "no body": lambda of: Notification(
        of.attributes, content_type=of.content_type, envelope=of.envelope
    ),
    "content type": lambda of: Notification(of.attributes, body=of.body, envelope=of.envelope),
    "id": lambda of: _enveloped(of, id=f"x{of.envelope.id}"),
    "publisher": lambda of: _enveloped(of, publisher="desk/rates"),
    "sequence": lambda of: _enveloped(of, sequence=18),
    "time": lambda of: _enveloped(of, time_us=STAMPED.at_us + 1),
    "time to live": lambda of: _enveloped(of, ttl_us=10**6),
    "priority": lambda of: _enveloped(of, priority=9),
    "delivery": lambda of: _enveloped(of, delivery="certified"),
}


def _with(of: Notification, **values: object) -> Notification:
    attributes: dict[str, Any] = {**of.attributes, **values}
    return Notification(
        attributes, body=of.body, content_type=of.content_type, envelope=of.envelope
    )


def _enveloped(of: Notification, **fields: Any) -> Notification:
    return of.with_envelope(replace(of.envelope, **fields))


@pytest.mark.parametrize("part", CHANGES)
def test_a_change_of_any_part_is_found(part: str) -> None:
    """A broker could change the content, and the publisher would be blamed."""
    changed = CHANGES[part](SIGNED)
    assert not changed.is_identical(SIGNED)
    assert reason(changed) == CHANGED


@given(published, published)
def test_no_signature_is_good_for_another(one: Notification, other: Notification) -> None:
    """Signed bytes could get another meaning by another encoding."""
    signature = DESK.signed(one).envelope.id.removeprefix(one.envelope.id)
    moved = _enveloped(other, id=one.envelope.id + signature)
    same = _enveloped(other, id=one.envelope.id).is_identical(one)
    assert reason(moved) == ("" if same else CHANGED)


@given(st.integers(0, len(SIGNED.envelope.id) - 1), st.sampled_from("AQgwz0_-~."))
def test_a_changed_id_is_never_verified(at: int, character: str) -> None:
    """A repetition would pass with another text of its signature."""
    id_ = SIGNED.envelope.id
    changed = _enveloped(SIGNED, id=id_[:at] + character + id_[at + 1 :])
    assert (reason(changed) == "") == changed.is_identical(SIGNED)
    same_bytes = _enveloped(SIGNED, id=id_[:-1] + chr(ord(id_[-1]) + 1))
    assert base64.urlsafe_b64decode(f"{id_[-86:]}==") == base64.urlsafe_b64decode(
        f"{same_bytes.envelope.id[-86:]}=="
    )
    assert [reason(same_bytes), reason(_enveloped(SIGNED, id=f"{id_}="))] == [UNSIGNED] * 2


@given(st.binary(max_size=400).map(lambda data: base64.urlsafe_b64encode(data).decode()))
def test_ids_of_strangers_are_no_signatures(tail: str) -> None:
    """An id that looks like a signed one would end a subscription."""
    for end in (tail, f"~{tail}", f"~{'A' * 16}~{tail[:85]}A"):
        id_ = f"desk.1{end}"[:255]
        assert reason(_enveloped(QUOTE, id=id_)) in {UNSIGNED, UNKNOWN_KEY}


def test_why_it_is_not_verified() -> None:
    """An attack could not be distinguished from a missing key."""
    assert reason(SIGNED) == ""
    assert reason(QUOTE) == UNSIGNED
    assert reason(STRANGER.signed(QUOTE)) == UNKNOWN_KEY
    assert reason(FORGER.signed(QUOTE)) == KEY_OF_ANOTHER


def test_a_key_speaks_for_its_names_alone() -> None:
    """A key would be valid for all names with the same beginning; or for none below its name."""
    for name in ("desk", "desk/rates", "desk/rates/eu"):
        signed = Signer(name, private_key(1)).signed(_enveloped(QUOTE, publisher=name))
        assert reason(signed) == ""
    for name in ("desks", "des", "", "/desk", "Desk", "feed"):
        signed = Signer(name, private_key(1)).signed(_enveloped(QUOTE, publisher=name))
        assert reason(signed) == KEY_OF_ANOTHER
    narrow = Verifier({"desk/rates": DESK.public_key})
    assert reason(SIGNED, narrow) == KEY_OF_ANOTHER


def test_a_name_may_have_several_keys_and_a_key_several_names() -> None:
    """Keys could not be changed while notifications signed by the old one are in flight."""
    both = Verifier({"desk": [STRANGER.public_key, DESK.public_key], "feed": DESK.public_key})
    of_feed = Signer("feed", private_key(1)).signed(_enveloped(QUOTE, publisher="feed"))
    assert [reason(each, both) for each in (SIGNED, STRANGER.signed(QUOTE), of_feed)] == [""] * 3


def test_only_its_own_is_signed_and_once() -> None:
    """A bridge would sign other publishers' notifications, or spoil their signatures."""
    assert DESK.signed(SIGNED) is SIGNED
    other = _enveloped(QUOTE, publisher="feed")
    assert DESK.signed(other) is other
    assert FEED.signed(SIGNED) is SIGNED


@needs_native
def test_signed_notifications_stay_on_the_fast_way() -> None:
    """Brokers would process signed notifications one by one."""
    plain = Notification({"symbol": "DIS", "price": 61.5}, envelope=STAMPED)
    packed = [to_msgpack(DESK.signed(plain))] * BUNDLE_MIN
    bundle = Bundle.of(packed)
    assert bundle is not None
    assert [VERIFIER.check(each) for each in bundle] == [STAMPED.id] * BUNDLE_MIN
    assert {id_ for _, id_ in bundle.identities()} == {DESK.signed(plain).envelope.id}
    assert notification_to_read(packed[0]).is_identical(DESK.signed(plain))


def test_bad_keys_and_names_are_told() -> None:
    """A typing error would give a signature that is never valid; or reveal a secret."""
    with pytest.raises(LimitError) as found:
        Signer("x" * (SIGNED_PUBLISHER_BYTES_MAX + 1), private_key(1))
    assert found.value.maximum == SIGNED_PUBLISHER_BYTES_MAX
    with pytest.raises(InvalidValueError, match="expected an Ed25519PrivateKey") as other:
        Signer("desk", b"secret")  # type: ignore[arg-type]
    assert "secret" not in str(other.value)
    for wrong in ("", "x", DESK.public_key[:-4], DESK.public_key + "AAAA", 5):
        with pytest.raises(InvalidValueError, match="contrada key show"):
            Verifier({"desk": [wrong]})  # type: ignore[list-item]
    with pytest.raises(InvalidNotificationError, match="@id"):
        DESK.signed(_enveloped(QUOTE, id="x" * 200))


def test_the_longest_name_can_be_stamped_and_signed() -> None:
    """A publisher would fail only at its last numbers."""
    name = "d" * SIGNED_PUBLISHER_BYTES_MAX
    longest = Envelope(f"{name}.{'f' * 16}.{2**63 - 1}", name, 2**63 - 1, 0)
    signed = Signer(name, private_key(1)).signed(QUOTE.with_envelope(longest))
    assert reason(signed, Verifier({name: DESK.public_key})) == ""


def test_keys_are_bounded() -> None:
    """A file of keys could fill the memory."""
    keys = [private(number) for number in (1, 2, 3)]
    with pytest.raises(LimitError, match="keys_max"):
        Verifier({"desk": keys}, limits=VerifierLimits(keys_max=2))


def private(number: int) -> str:
    """The public key of a private one."""
    return Signer("desk", private_key(number)).public_key


# --- repetitions ----------------------------------------------------------------------------------


def numbered(number: int, run: str = "desk.4f0c") -> Notification:
    """A signed notification of a sequence."""
    return DESK.signed(QUOTE.with_envelope(Envelope(f"{run}.{number}", "desk", number, 7)))


def told(read: Callable[[Notification], Any], of: Notification) -> str:
    """The reason why it is not read; empty if it is."""
    try:
        read(of)
    except NotVerifiedError as error:
        return error.reason
    return ""


def test_what_is_repeated_is_found() -> None:
    """A repeated order would be executed again."""
    verifier = Verifier({"desk": DESK.public_key}, limits=VerifierLimits(repeats_window=8))
    read = verifier.only("price any").from_notification
    for number, expected in [
        (1, ""),
        (1, REPEATED),
        (9, ""),
        (3, ""),
        (3, REPEATED),
        (9, REPEATED),
        (2, ""),
        (1, TOO_LATE),
        (2**62, ""),
        (9, TOO_LATE),
    ]:
        assert told(read, numbered(number)) == expected, number
    assert told(read, numbered(1, "desk.other")) == "", "who begins anew numbers from 1"
    changed = _enveloped(numbered(2**62 + 1), priority=9)
    assert told(read, changed) == CHANGED
    assert told(read, numbered(2**62 + 1)) == "", "a changed one takes nobody's number"


def test_who_was_silent_longest_is_forgotten() -> None:
    """A publisher with many names would fill the memory of all verifiers."""
    verifier = Verifier({"desk": DESK.public_key}, limits=VerifierLimits(sequences_known_max=2))
    read = verifier.only("price any").from_notification
    runs = ["a", "b", "a", "c", "a"]
    assert [told(read, numbered(1, run)) for run in runs] == ["", "", REPEATED, "", REPEATED]
    assert told(read, numbered(1, "b")) == ""


def test_each_subscription_has_its_own_memory() -> None:
    """Of two equal subscriptions, one would receive nothing."""
    both = [VERIFIER.only("price any").from_notification for _ in range(2)]
    assert [told(read, SIGNED) for read in both] == ["", ""]
