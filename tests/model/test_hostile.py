"""Input of strangers: only EncodingError, and soon."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from contrada.errors import ContradaError, EncodingError
from contrada.model import Filter, FilterSet, Notification, ValueSet
from contrada.model.algebra import sets
from contrada.model.codec import from_json, from_msgpack, to_json, to_msgpack
from contrada.model.syntax.parser import parse
from tests import strategies as some
from tests.model.test_round_trips import everything

SECONDS_MAX = 60.0
"""Far more than any of these needs on a busy machine, far less than a hang."""

_leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.integers(0, 7),
    st.floats(),
    st.binary(max_size=4),
    st.sampled_from(["is", "not", "every", "some", "pieces", "suffix", "= nocase", "a", "@id"]),
)
objects = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.text(max_size=3), st.integers(0, 3)), inner, max_size=3),
    ),
    max_leaves=12,
)
kinds = st.sampled_from(
    ["notification", "filter", "filter_set", "advertisement", "query", "pattern", "value_set"]
)


def reads_or_refuses(read: Callable[[Any], object], data: object) -> None:
    """Reading gives a thing or raises EncodingError, nothing else."""
    try:
        read(data)
    except EncodingError as error:
        assert error.reason  # noqa: PT017


@given(st.binary(max_size=200))
def test_random_bytes(data: bytes) -> None:
    """Noise would raise something that a broker does not catch."""
    reads_or_refuses(from_msgpack, data)
    reads_or_refuses(from_json, data)


@given(everything, st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4))
def test_mutated_encodings(thing: Any, changes: list[tuple[int, int]]) -> None:
    """A damaged encoding would raise something that a broker does not catch."""
    for write, read in ((to_msgpack, from_msgpack), (to_json, from_json)):
        written = write(thing)
        data = bytearray(written if isinstance(written, bytes) else written.encode())
        for place, byte in changes:
            data[place % len(data)] = byte
        reads_or_refuses(read, bytes(data))
        reads_or_refuses(read, bytes(data[: len(data) // 2]))


@given(kinds, objects)
@example("notification", [{}, ["", "", 0, -(2**62), None, 4, "x"], b"", ""])
@example("notification", [{}, ["", "", 0, 0, None, 4, "x", 5], b"", ""])
@example("notification", [{"": 1}, ["", "", 0, 0, None, 4, "x"], b"", ""])
@example("value_set", [[[6, b""]], None])
@example("value_set", [[[2, 1]], None])
@example("value_set", [[[4, float("nan")]], None])
@example("value_set", [[[5, 2**62]], None])
@example("value_set", [[[0], [0]], None])
@example("value_set", [[], ["is", "= nocase", b"\xff"]])
@example("value_set", [[], ["every", []]])
@example("value_set", [[], ["some", 7]])
@example("value_set", [[], [["is"], "suffix", b""]])
@example("pattern", [[{}, {}], [1], None, False])
@example("pattern", [[{}, {}], ["a"], -1, False])
def test_well_formed_nonsense(kind: str, payload: object) -> None:
    """An encoding of the right outline would get past the checks, or through them."""
    data = msgspec.msgpack.encode([1, kind, payload])
    try:
        thing = from_msgpack(data)
    except EncodingError:
        return
    assert to_msgpack(from_msgpack(to_msgpack(thing))) == to_msgpack(thing)
    str(thing)


REFUSED: dict[str, tuple[str, object]] = {
    "cuts out of order": ("value_set", [[[4, 2], [4, 1]], None]),
    "a cut twice": ("value_set", [[[4, 1], [4, 1]], None]),
    "a domain's first value": ("value_set", [[[6, b""]], None]),
    "a bool in numbers": ("value_set", [[[4, True]], None]),
    "NaN in numbers": ("value_set", [[[4, float("nan")]], None]),
    "65 bits": ("value_set", [[[4, 2**63]], None]),
    "a time out of range": ("value_set", [[[5, 2**62]], None]),
    "no such domain": ("value_set", [[[7]], None]),
    "text that is str": ("value_set", [[[6, "a"]], None]),
    "nocase of no text": ("value_set", [[], ["is", "= nocase", b"\xff"]]),
    "an empty name": ("filter", {"": [[[1]], None]}),
    "one filter as a pattern": ("pattern", [[{}], [], None, False]),
    "a negative span": ("pattern", [[{}, {}], [], -1, False]),
    "a name that is a number": ("pattern", [[{}, {}], [1], None, False]),
    "a reserved attribute": ("notification", [{"@id": 1}, ["", "", 0, 0, None, 4, ""], b"", ""]),
    "65 bits in an attribute": (
        "notification",
        [{"a": 2**64 - 1}, ["", "", 0, 0, None, 4, ""], b"", ""],
    ),
    "a map in an attribute": ("notification", [{"a": {}}, ["", "", 0, 0, None, 4, ""], b"", ""]),
    "a priority": ("notification", [{}, ["", "", 0, 0, None, 10, ""], b"", ""]),
    "an envelope too long": ("notification", [{}, ["", "", 0, 0, None, 4, "", 1], b"", ""]),
}


@pytest.mark.parametrize("what", REFUSED)
def test_unusual_encodings_are_refused(what: str) -> None:
    """Two encodings of one set would differ, or a set would break its invariants."""
    kind, payload = REFUSED[what]
    with pytest.raises(EncodingError):
        from_msgpack(msgspec.msgpack.encode([1, kind, payload]))


@given(kinds, objects.filter(lambda each: not isinstance(each, bytes)))
@example("notification", {"attributes": {"a": {"time": "0001-01-01T00:00:00+10:00"}}})
@example("notification", {"attributes": {"a": {"time": "2020-01-01T00:00:00"}}})
@example("notification", {"attributes": {"a": {"number": "x"}}})
@example("notification", {"attributes": {"a": {"bytes": "0"}}})
@example("notification", {"attributes": {"a": {}}})
@example("notification", {"attributes": {"a": [[1]]}})
@example("notification", {"attributes": {}, "envelope": {"nobody": 1}})
@example("notification", {"attributes": {}, "envelope": {"priority": True}})
@example("notification", {"attributes": {}, "body": 5})
@example("notification", {"attributes": {}, "content_type": 5})
@example("filter", {"a": {"b": 1}})
@example("filter", "a = @0001-01-01T00:00:00+10:00")
@example("pattern", "a = 1")
@example("value_set", ["< 3"])
def test_well_formed_nonsense_as_json(kind: str, payload: object) -> None:
    """A JSON text of the right outline would raise something that nobody catches."""
    try:
        text = msgspec.json.encode({"contrada": 1, kind: payload})
    except (TypeError, msgspec.EncodeError):
        return
    reads_or_refuses(from_json, text)


def nested(depth: int, kind: str = "every") -> list[Any]:
    """An expression that alternates, so that nothing flattens."""
    expression: list[Any] = ["is", "suffix", b"a"]
    for level in range(depth):
        name = ("every", "some")[level % 2] if kind == "every" else kind
        expression = [name, [expression, ["is", "contains", bytes((97 + level % 20,) * 3)]]]
    return expression


def value_set(expression: object) -> bytes:
    """The encoding of a value set with an expression."""
    return msgspec.msgpack.encode([1, "value_set", [[], expression]])


LARGE: dict[str, Callable[[], object]] = {
    "deep expression": lambda: from_msgpack(value_set(nested(400))),
    "deep expression of one kind": lambda: from_msgpack(value_set(nested(400, "some"))),
    "deep arrays": lambda: from_msgpack(b"\x91" * 100_000 + b"\xc0"),
    "deep JSON": lambda: from_json("[" * 100_000),
    "deep JSON value": lambda: from_json(
        '{"contrada":1,"notification":{"attributes":{"a":' + "[" * 900 + "]" * 900 + "}}}"
    ),
    "many parts": lambda: from_msgpack(
        value_set(["some", [["is", "contains", b"%d" % i] for i in range(150_000)]])
    ),
    "many cuts": lambda: from_msgpack(
        msgspec.msgpack.encode([1, "value_set", [[[4, i] for i in range(150_000)], None]])
    ),
    "array said to be huge": lambda: from_msgpack(b"\xdd\xff\xff\xff\xff"),
    "map said to be huge": lambda: from_msgpack(b"\x93\x01\xa6filter\xdf\xff\xff\xff\xff"),
    "long text": lambda: from_json('{"contrada":1,"filter":"a = \'' + "x" * 1_000_001 + "'\"}"),
    "many values": lambda: from_msgpack(
        msgspec.msgpack.encode(
            [1, "notification", [{"a": list(range(10_000))}, ["", "", 0, 0, None, 4, ""], b"", ""]]
        )
    ),
    "unterminated": lambda: from_json('{"contrada":1,"filter":"' + "a = 'x and " * 10_000 + '"}'),
}


@pytest.mark.quick_every(12)
@pytest.mark.parametrize("what", LARGE)
def test_large_nonsense_is_refused_soon(what: str) -> None:
    """A stranger could keep a broker busy, or use up its stack."""
    start = time.perf_counter()
    with pytest.raises(EncodingError):
        LARGE[what]()
    assert time.perf_counter() - start < SECONDS_MAX


LONG: dict[str, Callable[[], object]] = {
    "deep parentheses": lambda: from_json(
        '{"contrada":1,"value_set":"' + "(" * 50_000 + "< 3" + ")" * 50_000 + '"}'
    ),
    "deep complements": lambda: from_json('{"contrada":1,"value_set":"' + "~" * 50_000 + '< 3"}'),
    "union of numbers": lambda: ValueSet.parse(" | ".join(f"= {i}" for i in range(20_000))),
    "union of atoms": lambda: ValueSet.parse(" | ".join(f'contains "{i}"' for i in range(4_000))),
    "conjunction": lambda: Filter(" and ".join(f"a != {i}" for i in range(10_000))),
    "or": lambda: FilterSet(" or ".join(f"a = {i}" for i in range(10_000))),
    "nested sets": lambda: parse("a " + "(" * 20_000 + "= 1" + ")" * 20_000),
    "long constant": lambda: sets.contains("a" * 5_000).meets(sets.suffix("b" * 5_000)),
    "very long constant": lambda: sets.contains("a" * 10**6).meets(sets.suffix("b" * 10**6)),
    "long constant without case": lambda: sets.contains("a" * 3_000, nocase=True).meets(
        sets.suffix("k" * 3_000, nocase=True)
    ),
    "long point": lambda: sets.eq("a" * 5_000).meets(sets.suffix("b")),
    "very long point": lambda: sets.eq("a" * 10**6).meets(sets.suffix("b")),
    "long bound": lambda: sets.ge("a" * 5_000).issuperset(sets.suffix("b")),
    "many points": lambda: sets.in_(*(f"name{i * 7919}" for i in range(3_000))).meets(
        sets.suffix("b")
    ),
    "hash without case": lambda: hash(sets.eq("abcdefghijklmnopqrstuvwxyz" * 4, nocase=True)),
    "hash of a long suffix": lambda: hash(sets.suffix("ab" * 2_000)),
    "hash of a long point": lambda: hash(sets.eq("ab" * 2_000) | sets.suffix("b")),
    "covered by many": lambda: FilterSet([Filter({"x": i}) for i in range(3_000)]).covers(
        Filter({"x": list(range(3_000))})
    ),
}


@pytest.mark.quick_every(5)
@pytest.mark.parametrize("what", LONG)
def test_long_inputs_end_soon(what: str) -> None:
    """A long but well-formed text or filter would take time out of proportion."""
    start = time.perf_counter()
    with suppress(ContradaError):
        LONG[what]()
    assert time.perf_counter() - start < SECONDS_MAX


@given(st.text(max_size=60))
@example("a = 'x")
@example("a = `")
@example("\ud800 = 1")
@example('a = "\ud800"')
@example("a within 5 min")
def test_any_text_parses_or_says_why(text: str) -> None:
    """A typing error would raise something else than our errors."""
    try:
        parse(text)
    except ContradaError:
        return


@given(some.filters(some.value_sets(), some.names), st.integers(0, 200), st.characters())
def test_a_changed_text_parses_or_gives_a_reason(f: Filter, place: int, character: str) -> None:
    """A small typing error would raise something else than our errors."""
    text = str(f)
    place %= len(text)
    for changed in (text[:place] + text[place + 1 :], text[:place] + character + text[place:]):
        try:
            parse(changed)
        except ContradaError:
            continue


@given(some.notifications(some.values()), some.filters())
def test_nothing_is_shared_with_decoded_values(n: Notification, f: Filter) -> None:
    """A decoded value could change later through another one."""
    again = from_msgpack(to_msgpack(n))
    assert isinstance(again, Notification)
    with pytest.raises(TypeError):
        again.attributes["a"] = 1  # type: ignore[index]
    with pytest.raises(TypeError):
        f.sets["a"] = sets.exists()  # type: ignore[index]
