"""Round trips: text, msgpack, JSON, pickle, digests."""

import os
import pickle
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.model import (
    Advertisement,
    Filter,
    FilterSet,
    Notification,
    Pattern,
    Query,
    Value,
    ValueSet,
    codec,
    parse,
)
from contrada.model.algebra import sets
from contrada.model.codec import Encodable, digest, from_json, from_msgpack, to_json, to_msgpack
from contrada.model.languages.atoms import KEYWORDS
from tests import strategies as some

sets_ = some.value_sets()
everything: st.SearchStrategy[Encodable] = st.one_of(
    sets_,
    some.filters(sets_, some.names),
    some.filter_sets(sets_),
    some.patterns(),
    some.advertisements(sets_, some.names),
    some.queries(sets_),
    some.notifications(some.values(), some.names),
)


@given(sets_)
def test_the_text_of_a_set_is_the_set(a: ValueSet) -> None:
    """A printed value set would parse as another."""
    assert ValueSet.parse(str(a)) == a


@pytest.mark.parametrize("text", ["a matches /b+c/i", "a matches /b+c/", "a matches /b+ \\/d/Uis"])
def test_the_text_of_an_expression_has_its_flags(text: str) -> None:
    """A printed expression would ignore case, or be another one."""
    assert str(parse(text)) == text


@given(some.interval_sets(12))
def test_the_text_of_intervals_has_their_form(a: ValueSet) -> None:
    """Plain intervals would be parsed into another form."""
    assert ValueSet.parse(str(a)).line == a.line


@given(st.lists(some.values(), min_size=1, max_size=4))
def test_the_text_of_values_is_the_values(values: list[Value]) -> None:
    """A printed value would parse as another."""
    for build in (sets.in_, sets.not_in, sets.any_but, sets.none_of):
        held = build(*values)
        assert ValueSet.parse(str(held)).line == held.line


@given(some.filters(sets_, st.one_of(some.names, some.odd_names)))
def test_the_text_of_a_filter_is_the_filter(f: Filter) -> None:
    """A printed filter would parse as another."""
    assert parse(str(f)) == f
    assert Filter(str(f)) == f
    assert Query(str(Query.of_sets(f.sets))) == Query.of_sets(f.sets)


@given(some.filter_sets(sets_))
def test_the_text_of_a_filter_set_is_the_filter_set(f: FilterSet) -> None:
    """A printed filter set would parse as another."""
    again = FilterSet(str(f))
    assert len(again) == len(f)
    assert all(a == b for a, b in zip(again, f, strict=True))


@given(some.patterns(sets_))
def test_the_text_of_a_pattern_is_the_pattern(p: Pattern) -> None:
    """A printed pattern would parse as another."""
    assert parse(str(p)) == p


@given(some.advertisements(sets_, st.one_of(some.names, some.odd_names)))
def test_the_text_of_an_advertisement_is_the_advertisement(a: Advertisement) -> None:
    """A printed advertisement would parse as another."""
    assert Advertisement(str(a)) == a


@given(some.filters(), some.filters())
def test_the_text_of_a_merged_filter(f: Filter, g: Filter) -> None:
    """A merged filter could not be printed."""
    for name in {*f.sets, *g.sets}:
        united = Filter({name: f.set_of(name) | g.set_of(name)})
        assert Filter(str(united)) == united


@pytest.mark.parametrize("name", [*some.NAMES, *sorted(KEYWORDS)])
def test_every_name_can_be_written(name: str) -> None:
    """A name would be read as a word of the syntax, or not at all."""
    f = Filter({name: 1, "z": sets.exists()})
    assert Filter(str(f)).sets.keys() == f.sets.keys()
    assert parse(str(Pattern([f, f], by=(name, "z")))) == Pattern([f, f], by=(name, "z"))


@pytest.mark.parametrize("character", [*some.CONTROLS, '"', "'", "\\", "`", "\u2028", "\U0010ffff"])
def test_every_character_can_be_written(character: str) -> None:
    """A text with this character would be read as another."""
    for text in (character, f"a{character}", f"{character} & b", f'"{character}" | x'):
        for build in (sets.eq, sets.prefix, sets.suffix, sets.gt, sets.le):
            f = Filter({"a": build(text), "b": sets.contains(text) & sets.ne(text)})
            assert Filter(str(f)) == f


@given(everything)
def test_msgpack_and_json_round_trips(thing: Encodable) -> None:
    """A broker or a file would give back something else than it was given."""
    for again in (from_msgpack(to_msgpack(thing)), from_json(to_json(thing))):
        assert type(again) is type(thing)
        assert is_same(again, thing)
    assert is_same(pickle.loads(pickle.dumps(thing)), thing)


def is_same(a: object, b: object) -> bool:
    """Whether two things are equal; of notifications, envelopes included."""
    return (
        a.is_identical(b) if isinstance(a, Notification) and isinstance(b, Notification) else a == b
    )


@given(everything)
def test_msgpack_is_canonical_of_what_it_reads(thing: Encodable) -> None:
    """A broker that decodes and encodes would change the bytes."""
    data = to_msgpack(thing)
    assert to_msgpack(from_msgpack(data)) == data


@given(some.interval_sets(), some.interval_sets(), some.interval_sets())
def test_equal_intervals_have_equal_digests(a: ValueSet, b: ValueSet, c: ValueSet) -> None:
    """Two processes would not recognise one filter."""
    assert digest(a & (b | c)) == digest((a & b) | (a & c))
    assert (digest(a) == digest(b)) is (a == b)
    f, g = (Filter({"x": ~(a | b), "y": c}), Filter({"y": c, "x": ~a & ~b}))
    assert digest(f) == digest(g)


DIGESTS = """
from contrada.model import (Filter)
from contrada.model.algebra import sets
from contrada.model.codec import digest, to_msgpack
texts = ["a = 1 and b in ('x', null, true)", "a != 2 and c prefix 'p'", "t contains nocase 'K'"]
made = [Filter(text) for text in texts]
made.append(Filter({"s": sets.in_("ß", "a", 3, None) - sets.suffix("a")}))
made += [value_set for each in list(made) for value_set in each.sets.values()]
print([(digest(each).hex(), to_msgpack(each).hex(), str(each)) for each in made])
"""


def test_digests_and_encodings_are_the_same_in_every_process() -> None:
    """Hash randomisation would leak into encodings."""
    outputs = {
        subprocess.run(
            [sys.executable, "-c", DIGESTS],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("0", "1", "4711")
    }
    assert len(outputs) == 1
    assert "digest" not in outputs.pop()


@given(some.notifications(some.values(), some.names))
def test_equal_notifications_have_one_json(n: Notification) -> None:
    """The order in which attributes were given would show in JSON."""
    attributes = dict(reversed([*n.attributes.items()]))
    same = Notification(attributes, body=n.body, content_type=n.content_type, envelope=n.envelope)
    assert same == n
    assert hash(same) == hash(n)
    assert to_json(same) == to_json(n)


def test_every_kind_is_covered_here() -> None:
    """A new kind of thing could be encoded without a round trip being tried."""
    assert set(codec._KINDS) == {
        *(Notification, Filter, FilterSet, Advertisement, Query, Pattern, ValueSet)
    }


def test_one_name_of_a_pattern_is_one_name() -> None:
    """A pattern by `host` would be one by four letters."""
    parts = [Filter("a = 1"), Filter("b = 2")]
    assert Pattern(parts, by="host") == Pattern(parts, by=("host",))
    assert Pattern(parts, by="host").by == ("host",)
