"""Refusals of notifications and envelopes, equality, typed access, and missing times."""

import itertools
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from time import thread_time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.errors import (
    AttributeValueError,
    EncodingError,
    InvalidNameError,
    InvalidNotificationError,
    LimitError,
)
from contrada.model import Advertisement, Constraint, Envelope, Filter, Notification, Pattern, Query
from contrada.model.algebra import attributes, sets
from contrada.model.algebra.attributes import (
    ATTRIBUTES_KEPT_MAX,
    ATTRIBUTES_MAX,
    VALUES_MAX,
    _kind_of,
    check_span,
)
from contrada.model.algebra.notification import OWN, from_parts
from contrada.model.algebra.product import ENVELOPE_TEXT_BYTES_MAX
from contrada.model.algebra.relations import witness
from contrada.model.algebra.value_set import NOTHING
from contrada.model.codec import from_json, from_msgpack, to_json, to_msgpack
from contrada.model.domains.values import INT_MAX
from tests import strategies as some

LONG = "é" * (ENVELOPE_TEXT_BYTES_MAX // 2 + 1)

REFUSED: list[tuple[str, Callable[[], object], str, str]] = [
    ("ttl past 64 bits", lambda: Envelope(ttl_us=INT_MAX + 1), "@ttl_us", str(INT_MAX)),
    ("ttl below 0", lambda: Envelope(ttl_us=-1), "@ttl_us", "0"),
    ("id no UTF-8", lambda: Envelope(id="\ud800"), "@id", "surrogate"),
    ("publisher no UTF-8", lambda: Envelope(publisher="\udcff"), "@publisher", "surrogate"),
    ("delivery no UTF-8", lambda: Envelope(delivery="\ud800"), "@delivery", "surrogate"),
    ("long id", lambda: Envelope(id=LONG), "@id", "ENVELOPE_TEXT_BYTES_MAX"),
    ("long publisher", lambda: Envelope(publisher=LONG), "@publisher", "ENVELOPE_TEXT_BYTES_MAX"),
    ("no content type", lambda: Notification({}, content_type=5), "@content_type", "str"),  # type: ignore[arg-type]
    (
        "content type no UTF-8",
        lambda: Notification({}, content_type="\ud800"),
        "@content_type",
        "surrogate",
    ),
    (
        "long content type",
        lambda: Notification({}, content_type=LONG),
        "@content_type",
        "ENVELOPE_TEXT_BYTES_MAX",
    ),
    ("many values", lambda: Notification({"a": range_of(VALUES_MAX)}), "a", "VALUES_MAX"),
    ("an empty mark", lambda: Notification.with_marks({}, [""]), "@is.", "reserved"),
    ("a mark no UTF-8", lambda: Notification.with_marks({}, ["\ud800"]), "@is.\ud800", "surrogate"),
    (
        "reserved beside marks",
        lambda: Notification.with_marks({"@id": 1}, ["T"]),
        "@id",
        "reserved",
    ),
    *(
        (f"reserved {name}", lambda name=name: Notification({name: 1}), name, "are reserved")
        for name in ("@id", "@publisher", "@time", "@is.", "@is.Quote")
    ),
]


def range_of(most: int) -> list[int]:
    """One value more than may be."""
    return list(range(most + 1))


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row[0])
def test_invalid_notifications_are_refused_at_once(
    row: tuple[str, Callable[[], object], str, str],
) -> None:
    """Encoding or matching it would raise later, in the service, for somebody else."""
    _, make, name, reason = row
    with pytest.raises(InvalidNotificationError) as caught:
        make()
    assert caught.value.name == name
    assert reason in caught.value.reason


def test_notifications_at_their_limits_are_encoded() -> None:
    """A limit would be one less than documented."""
    text = "e" * ENVELOPE_TEXT_BYTES_MAX
    envelope = Envelope(id=text, publisher=text, delivery=text, ttl_us=INT_MAX)
    full = {f"a{number}": 1 for number in range(ATTRIBUTES_MAX - 1)}
    held = Notification(
        {**full, "many": range_of(VALUES_MAX - 1)}, content_type=text, envelope=envelope
    )
    read = from_msgpack(to_msgpack(held))
    assert isinstance(read, Notification)
    assert read.is_identical(held)


def test_too_many_attributes_name_their_limit() -> None:
    """The error would speak of an attribute without a name."""
    with pytest.raises(LimitError) as caught:
        Notification({f"a{number}": 1 for number in range_of(ATTRIBUTES_MAX)})
    assert (caught.value.limit, caught.value.size) == ("ATTRIBUTES_MAX", ATTRIBUTES_MAX + 1)


def test_marks_are_added_to_attributes_that_are_looked_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Publishing typed events would cost twice as much as it needs."""
    seen: list[str] = []
    held = attributes.normalize_values

    def counted(name: str, value: object) -> object:
        seen.append(name)
        return held(name, value)

    monkeypatch.setattr(attributes, "normalize_values", counted)
    at = datetime(2026, 1, 2, tzinfo=UTC)  # No plain value, so each is looked at by itself.
    marked = Notification.with_marks({"a": at, "b": 2}, ["T", "U"])
    assert dict(marked.attributes) == {"a": at, "b": 2, "@is.T": True, "@is.U": True}
    assert seen == ["a", "b", "@is.T", "@is.U"]
    assert marked == from_msgpack(to_msgpack(marked))


@pytest.mark.parametrize(
    "read", [lambda n: from_msgpack(to_msgpack(n)), lambda n: from_json(to_json(n))]
)
def test_the_first_moment_of_1970_is_a_time(read: Callable[[Notification], Notification]) -> None:
    """A time of 1970 would be taken for a missing one."""
    at_epoch = Notification({}, envelope=Envelope(time_us=0))
    unstamped = Notification({})
    assert read(at_epoch).envelope.time_us == 0
    assert read(unstamped).envelope.time_us is None
    assert not at_epoch.is_identical(unstamped)
    # The algebra has no absent @time, so filters see 1970 in both.
    assert all(Filter("@time = @1970-01-01T00:00:00Z").matches(n) for n in (at_epoch, unstamped))


@pytest.mark.parametrize("name", ["@timestamp", "@", "@1", "@ID", "@idx", "@is", "@issue", "@@id"])
def test_names_that_are_not_the_systems_are_the_users(name: str) -> None:
    """Records of shippers of logs, which have `@timestamp` and `@version`, would all be refused."""
    notification = Notification({name: "x"})
    assert (
        from_msgpack(to_msgpack(notification)) == from_json(to_json(notification)) == notification
    )
    for product in (Filter({name: "x"}), Query({name: "x"}), Advertisement({name: "x"})):
        assert from_msgpack(to_msgpack(product)) == type(product)(str(product)) == product
        assert product.set_of(name) == Constraint(name, "=", "x").value_set | (
            sets.absent() if isinstance(product, Advertisement) else NOTHING
        )
    assert Filter({name: "x"}).matches(notification)
    assert not Filter({name: "y"}).matches(notification)
    assert Pattern([Filter({}), Filter({})], by=name).by == (name,)


def test_constraints_have_the_names_of_filters() -> None:
    """A triple would have a meaning that no filter can have."""
    with pytest.raises(InvalidNameError):
        Constraint("", "=", 1)
    assert Constraint("@id", "=", "x").matches("@id", "x")
    assert Constraint("@is.T", "=", True).matches("@is.T", True)


@pytest.mark.parametrize("constant", [f"'{LONG}'", 'x"ff"'])
def test_no_witness_is_made_up_that_no_envelope_holds(constant: str) -> None:
    """Asking for a witness would raise."""
    assert witness(Filter(f"@id = {constant}")) is None


@pytest.mark.parametrize("name", ["@id", "@publisher"])
def test_texts_that_no_envelope_holds_make_no_difference(name: str) -> None:
    """A filter that nothing can match would be subscribed, and covering be missed."""
    assert Filter(f"{name} = '{LONG}'").is_empty
    assert Filter(f'{name} = x"c3"').is_empty
    assert Filter(f'{name} >= x"f5"').is_empty
    assert Filter(f'{name} != x"c3"') == Filter(f'{name} < x"ff"') == Filter({})
    assert Filter(f'{name} prefix x"c3"') == Filter(f"{name} >= '\u00c0' and {name} < '\u0100'")
    assert Advertisement(f'{name} in (x"ff", "a")') == Advertisement(f"{name} = 'a'")
    found = witness(Filter(f'{name} >= "\u212a" and {name} not suffix "\u212a"'))
    assert found is not None
    assert Filter(f'{name} >= "\u212a" and {name} not suffix "\u212a"').matches(found)


def test_a_notification_reads_as_a_mapping() -> None:
    """Functions for mappings would not accept a notification."""
    notification = Notification({"a": [2, 1], "b": "x"})
    assert dict(notification) == {"a": (1, 2), "b": "x"}
    assert dict(**notification) == dict(notification.items())
    assert isinstance(notification, Mapping)
    assert (list(notification.keys()), notification.get("c", 5)) == (["a", "b"], 5)


def test_json_gives_back_all_of_it() -> None:
    """Times, bytes, the envelope or the body would be lost on the way through a file."""
    notification = Notification(
        {"t": datetime(2026, 1, 2, tzinfo=UTC), "b": b"\xff", "n": [1, 2.5], "nan": float("nan")},
        body=b"\x00",
        content_type="x",
        envelope=Envelope("i", "p", 3, 4),
    )
    assert Notification.from_json(notification.to_json()).is_identical(notification)
    with pytest.raises(EncodingError, match="expected a notification, found a filter"):
        Notification.from_json(to_json(Filter("a = 1")))


def test_a_received_notification_equals_the_published_one() -> None:
    """A subscriber could not look for the notification that it published."""
    published = Notification({"a": 5, "b": ["x", "y"]}, body=b"z", content_type="t")
    stamped = published.with_envelope(Envelope("i", "p", 3, 4))
    received = from_msgpack(to_msgpack(stamped))
    assert (
        received
        == published
        == Notification({"a": 5.0, "b": ["y", "x"]}, body=b"z", content_type="t")
    )
    assert hash(received) == hash(published)
    assert isinstance(received, Notification)
    assert received.is_identical(stamped)
    assert not received.is_identical(published)
    for other in (
        Notification({"a": 6, "b": ["x", "y"]}, body=b"z", content_type="t"),
        Notification(published, body=b"z"),
        Notification(published, content_type="t"),
        Notification({"a": True, "b": ["x", "y"]}, body=b"z", content_type="t"),
        dict(published),
    ):
        assert other != published


AT = datetime(2026, 1, 2, tzinfo=UTC)
TYPED = Notification(
    {"i": 5, "f": 2.5, "s": "x", "b": b"y", "odd": b"\xff", "t": AT, "yes": True, "two": [1, 2]}
)


def test_typed_access_gives_the_value_of_a_domain() -> None:
    """Arithmetic with an attribute would need a cast, or fail elsewhere for a text."""
    for n in (TYPED, Notification.from_json(TYPED.to_json()), from_parts(TYPED.span, b"", "", OWN)):
        assert (n.number("i") * 2, n.number("f")) == (10, 2.5)
        assert (n.text("s"), n.text("b"), n.time("t"), n.boolean("yes")) == ("x", "y", AT, True)


@pytest.mark.parametrize(
    ("read", "name", "reason"),
    [
        (Notification.number, "yes", "expected a number, found True"),
        (Notification.number, "s", "expected a number, found 'x'"),
        (Notification.number, "none", "expected a number, found no values"),
        (Notification.number, "two", "expected a number, found 2 values"),
        (Notification.text, "odd", r"expected a text, found b'\\xff'"),
        (Notification.time, "i", "expected a time, found 5"),
        (Notification.boolean, "i", "expected true or false, found 5"),
    ],
)
def test_typed_access_names_what_it_found(
    read: Callable[[Notification, str], object], name: str, reason: str
) -> None:
    """The error would not name the attribute of another type."""
    with pytest.raises(AttributeValueError, match=f"attribute '{name}': {reason}") as caught:
        read(TYPED, name)
    assert (caught.value.name, len(caught.value.values)) == (
        name,
        {"none": 0, "two": 2}.get(name, 1),
    )


def test_spans_are_checked_on_every_path() -> None:
    """Bytes of a stranger would be matched, or forwarded, that no notification can hold."""
    for each in ({"": 1}, {"@id": "x"}, {"a": 2**63}, {"a": {"b": 1}}, {"a": [[1]]}):
        with pytest.raises(InvalidNotificationError):
            check_span(msgspec.msgpack.encode(each))
        with pytest.raises(InvalidNotificationError):
            Notification.from_attributes(each, b"", "", Envelope())  # type: ignore[arg-type]
    for span in (b"\x82\xa1a\x01\xa1a\x02", b"\x81\xa1a", b"\x90", b"\x81\xa1\xff\x01", b""):
        with pytest.raises(EncodingError):
            check_span(span)
    many = {f"n{n}": 1 for n in range(ATTRIBUTES_MAX + 1)}
    with pytest.raises(LimitError):
        check_span(msgspec.msgpack.encode(many))


def test_names_that_were_seen_are_checked_as_before() -> None:
    """A name would be good because another kind of it, or a mark, was seen."""

    class Name(StrEnum):
        A = "a"

    Notification({"a": 1})
    Notification.with_marks({}, ["T"])
    with pytest.raises(InvalidNotificationError):
        Notification({Name.A: 1})
    with pytest.raises(InvalidNotificationError):
        Notification({"@is.T": True})


@given(some.notifications(some.values(), some.names), st.integers(0, ATTRIBUTES_KEPT_MAX + 1))
def test_values_that_are_kept_are_those_of_the_bytes(of: Notification, more: int) -> None:
    """Subscribers in this process would read other values than remote ones."""
    given_ = dict(of) | {f"n{number}": number / 2 for number in range(more)}
    made = Notification(given_)
    given_.clear()
    read = from_parts(made.span, b"", "", made.envelope)
    assert repr(dict(made)) == repr(dict(read))
    assert [*map(type, made.values())] == [*map(type, read.values())]


_ONE_HASH = [2.0 ** (61 * n) for n in range(-17, 17) if n]


def _pairs(count: int) -> bytes:
    """A map with lists of one hash in Python as keys."""
    keys = itertools.islice(itertools.product(_ONE_HASH, repeat=4), count)
    pairs = b"".join(msgspec.msgpack.encode(list(key)) + b"\xc0" for key in keys)
    return b"\xdf" + count.to_bytes(4, "big") + pairs


@pytest.mark.usefixtures("without_old_objects")
@pytest.mark.parametrize(
    ("span", "error", "said"),
    [
        (b"\x81\xa1a" + _pairs(3_000), InvalidNotificationError, "a map is no value"),
        (b"\x81\xa1a\x91" + _pairs(3_000), InvalidNotificationError, "a map is no value"),
        (b"\x82\xa1a" + _pairs(3_000) + b"\xa1a\xc0", EncodingError, "two attributes"),
        (
            b"\x81\xa1a\xdd\x00\x0f\x00\x00" + b"\x90" * 0xF0000,
            InvalidNotificationError,
            "VALUES_MAX",
        ),
        (
            b"\x81\xa1a\xdc\x0f\xff" + b"\x90" * 4_095,
            InvalidNotificationError,
            "a list is no value",
        ),
        (b"\xdf\x00\x0f\x00\x00" + b"\xa0\xc0" * 0xF0000, LimitError, "ATTRIBUTES_MAX"),
        (b"\x91" + b"\xc0" * 5_000, EncodingError, "cannot read msgpack"),
    ],
)
def test_invalid_values_are_refused_before_decoding(
    span: bytes, error: type[Exception], said: str
) -> None:
    """A few hundred kilobytes would keep a server for seconds, or fill its memory."""
    began_s = thread_time()
    with pytest.raises(error, match=said):
        check_span(span)
    assert thread_time() - began_s < 0.1


@pytest.mark.parametrize("size", [0, 1, 14, 15, 16, 65_535, 65_536])
def test_a_map_or_list_of_any_size_is_known_by_its_first_byte(size: int) -> None:
    """A nested value of a long notification would be decoded before it is refused."""
    encoded = msgspec.msgpack.encode
    assert _kind_of(encoded(dict.fromkeys(range(size)))) == "map"
    assert _kind_of(encoded([None] * size)) == "list"
    for value in (size, -size, "x" * size, b"x" * size, size > 1, None, size / 3):
        assert _kind_of(encoded(value)) == ""


def test_a_long_span_has_the_values_of_a_short_one() -> None:
    """Long notifications would be refused, or read otherwise."""
    values = {"a": ["x" * 3_000, 1, None], "b": b"\xff", "t": datetime(2026, 1, 1, tzinfo=UTC)}
    notification = Notification({**values, "n": 2**63 - 1, "f": -0.5})
    assert check_span(notification.span)["b"] == b"\xff"
    assert from_msgpack(to_msgpack(notification)) == notification
