"""The array engine: keys, the scratch, renewal in parts, and the arguments of kernels."""

import contextlib
import gc
import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

import contrada as ct
from contrada.errors import InvalidNotificationError
from contrada.matching.array_engine import UNITS_PER_MATCH, UNITS_PER_UPDATE, ArrayEngine
from contrada.matching.kernels.schema import EPOCHS_MAX
from contrada.matching.packed import spans_of
from contrada.model.algebra.notification import Envelope
from contrada.model.algebra.sets import between
from contrada.model.codec import notification_from_msgpack, to_msgpack
from contrada.model.languages.work_budget import Work
from tests.matching.engines import COMPILED, arrays_of, module, naive, needs_native, new_index


def new_engine(compiled: bool) -> Any:
    return module("array_engine", compiled).ArrayEngine()


@pytest.mark.parametrize("compiled", COMPILED)
def test_a_key_has_the_filters_that_it_got_last(compiled: Any) -> None:
    """A key would keep a filter that was replaced, or lose one of several."""
    engine = new_engine(compiled)
    one, two, three = (ct.Filter({"a": n}) for n in range(3))
    engine.add("k", (one, two, one))
    assert engine.members("k") == (one, two)
    engine.add("k", (three,))
    assert engine.members("k") == (three,)
    engine.add("none", ())
    assert engine.members("none") == ()
    assert sorted(engine) == ["k", "none"]
    assert (len(engine), "k" in engine, "other" in engine) == (2, True, False)
    engine.remove("other")
    engine.remove("none")
    with pytest.raises(KeyError):
        engine.members("none")
    engine.validate()


@pytest.mark.parametrize("compiled", COMPILED)
def test_updates_and_matches_pay_for_a_renewal(compiled: Any) -> None:
    """A renewal that has begun would never end where nobody calls `maintain`."""
    engine = new_engine(compiled)
    for key in range(40):
        engine.add(key, (ct.Filter({"a": key}),))
    engine.begin_renewal()
    engine.add(100, (ct.Filter("a = 100"),))
    assert engine._cursor == UNITS_PER_UPDATE
    engine.remove(3)
    assert engine._cursor == 2 * UNITS_PER_UPDATE
    assert engine.match({"a": 7}) == [7]
    assert engine._cursor == 2 * UNITS_PER_UPDATE + UNITS_PER_MATCH
    first, turns = engine._segment, 0
    while engine.sizes()["renewing"]:
        assert engine.match({"a": 100}) == [100]
        assert engine.match({"a": 3}) == []
        turns += 1
    assert turns <= 40
    assert engine._segment is not first
    engine.validate()
    while engine.maintain(5):
        assert engine.match({"a": 100}) == [100]
    assert engine._last is None


@pytest.mark.parametrize("compiled", COMPILED)
def test_a_key_that_takes_a_slot_which_was_renewed_is_kept(compiled: Any) -> None:
    """A key added during a renewal would be lost in the slot of a removed one."""
    engine = new_engine(compiled)
    for key in range(20):
        engine.add(key, (ct.Filter({"a": key}),))
    engine.begin_renewal()
    engine.maintain(10)
    engine.remove(3)
    engine.add(200, (ct.Filter("a = 200"),))
    while engine.maintain(10):
        assert engine.match({"a": 200}) == [200]
    assert engine.match({"a": 200}) == [200]
    engine.validate()


@pytest.mark.parametrize("compiled", COMPILED)
def test_a_refused_filter_changes_neither_segment(
    compiled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While an index is renewed, a refused filter would be in one half of it."""
    engine = new_engine(compiled)
    for key in range(20):
        engine.add(key, (ct.Filter({"a": key}),))
    engine.begin_renewal()
    engine.maintain(10)
    monkeypatch.setattr(module("filter_compiler", compiled), "TEXT_BYTES_MAX", 3)
    with pytest.raises(ct.errors.LimitError):
        engine.add(5, (ct.Filter("a = 99"), ct.Filter("a = 'long'")))
    while engine.maintain(10):
        assert engine.match({"a": 5}) == [5]
        assert engine.match({"a": 99}) == []
    engine.validate()


@pytest.mark.parametrize("compiled", COMPILED)
def test_values_unknown_to_the_encoder_are_checked(compiled: Any) -> None:
    """A value that is no value would be matched as the text that the encoder makes of it."""
    engine = new_engine(compiled)
    engine.add(1, (ct.Filter("a = 1 and b = 2"),))
    wrong: Any = object()
    assert engine.match({"a": 1, "b": (2, 3), "c": wrong}) == [1], "nobody asks for it"
    assert engine.match({"a": {1, 5}, "b": [2]}) == [1]
    for within in ([[1]], {"x": 1}):
        assert engine.match({"a": within, "b": 2}) == [], "it is another attribute, or none"
    for value in (wrong, [wrong], 2**64 - 1, 2**70, "\ud800"):
        with pytest.raises(InvalidNotificationError):
            engine.match({"a": value})


FLOAT32 = b"\xca" + struct.pack(">f", 1.5)
TIME_LONG = b"\xc7\x04\xff" + struct.pack(">I", 1_000)


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("value", [FLOAT32, TIME_LONG, b"\x92\x07" + FLOAT32], ids=bytes.hex)
def test_a_value_that_others_write_otherwise_is_matched(value: bytes, compiled: Any) -> None:
    """A client in another language would make its broker fail, and lose the rest of the batch."""
    filters = [ct.Filter(each) for each in ("a = 1.5", "a = @1970-01-01T00:16:40Z", "z = 1")]
    filters.append(ct.Filter("@publisher = 'p'"))
    engine = new_engine(compiled)
    span = b"\x82\xa1z\x01\xa1a" + value
    stamped = Envelope("i", "p", 1, 0)
    given = notification_from_msgpack(
        to_msgpack(ct.Notification({}, envelope=stamped)).replace(b"\x80", span, 1)
    )
    assert given.span == span
    for number, each in enumerate(filters):
        engine.add(100 + number, (each,))  # a key that is no slot: the former answer is still there
        expected = [100 + key for key in range(number + 1) if filters[key].matches(given)]
        assert sorted(engine.match(given)) == expected
        assert sorted(engine.match(span, stamped)) == expected
        offsets, keys = engine.match_each([given, ct.Notification({"z": 1}), given])
        assert sorted(keys[: offsets[1]].tolist()) == expected
        assert sorted(keys[offsets[2] :].tolist()) == expected
    assert len(engine.match(given)) == 3


@pytest.mark.parametrize("compiled", COMPILED)
def test_the_envelope_is_read_while_some_filter_asks_for_it(compiled: Any) -> None:
    """Each notification would carry its envelope for nothing; or a filter on it find none."""
    engine = new_engine(compiled)
    engine.add(1, (ct.Filter("a = 1"),))
    assert engine.envelope == ()
    engine.add(2, (ct.Filter("@publisher = 'p' and @id = 'i'"),))
    assert engine.envelope == ("@id", "@publisher")
    given = ct.Notification({"a": 1}).with_envelope(Envelope(id="i", publisher="p"))
    assert sorted(engine.match(given)) == [1, 2]
    assert sorted(engine.match(given.span, given.envelope)) == [1, 2]
    assert engine.match({"a": 1, "@publisher": "p", "@id": "i"}) == [1]
    engine.remove(2)
    engine.begin_renewal()
    while engine.maintain():
        pass
    assert engine.envelope == ()
    assert engine.match(given) == [1]


@pytest.mark.parametrize("compiled", COMPILED)
def test_a_set_that_only_the_model_can_tell_is_asked_once(
    compiled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An expression that a thousand rules share would be searched for a thousand times."""
    engine = new_engine(compiled)
    for key in range(50):
        engine.add(key, (ct.Filter(f"t matches /x+y$/ and n >= {key}"),))
    asked = []
    holds = ct.ValueSet.holds

    def counted(of: Any, key: Any) -> bool:
        asked.append(key)
        return holds(of, key)

    monkeypatch.setattr(ct.ValueSet, "holds", counted)
    assert sorted(engine.match({"t": "axxy", "n": 30})) == list(range(31))
    assert engine.match({"t": "xyz", "n": 30}) == []
    assert len(asked) == 2


@pytest.mark.parametrize("compiled", COMPILED)
def test_stamps_start_anew_when_their_numbers_run_out(compiled: Any) -> None:
    """After two thousand million notifications old stamps would look new."""
    index: ct.Index[Any] = new_index(compiled)
    index.add("k", ct.Filter({"a": 1}))
    assert index.match({"a": 1}) == ["k"]
    arrays_of(index)._segment.arrays.counters.epoch[0] = EPOCHS_MAX
    assert index.match({"b": 1}) == []
    assert index.match({"a": 1}) == ["k"]


@pytest.mark.slow
def test_renewal_frees_unused_parts() -> None:
    """Words of removed filters would stay for ever."""
    index: ct.Index[Any] = new_index(False)
    for key in range(3000):
        index.add(key, ct.Filter({"a": key, "b": ct.ops.gt(key)}))
    for key in range(2990):
        index.remove(key)
    before = index.statistics().bytes
    index.renew()
    index.validate()
    assert index.statistics().bytes < before / 5
    assert index.match({"a": 2995, "b": 5000}) == [2995]


@pytest.mark.parametrize("compiled", COMPILED)
def test_long_texts_and_many_values_make_the_scratch_grow(compiled: Any) -> None:
    """A notification larger than any before would be matched in part."""
    index: ct.Index[Any] = new_index(compiled)
    index.add("end", ct.Filter({"x": ct.ops.suffix("Z", nocase=True)}))
    index.add("few", ct.Filter({"y": 999}))
    for number in range(300):
        index.add(number, ct.Filter({"y": ct.ops.ge(0)}))
    found = index.match({"x": "a" * 100_000 + "z", "y": list(range(1000))})
    assert sorted(map(str, found)) == sorted(["end", "few", *map(str, range(300))])


def test_a_notification_is_counted_once() -> None:
    """Figures would count how often an array grew."""
    index: ct.Index[int] = new_index(False)
    for key in range(300):
        index.add(key, ct.Filter({"a": ct.ops.ge(0), "b": ct.ops.none_of(key)}))
    assert len(index.match({"a": 1})) == 300
    assert index.statistics().notifications == 1


def test_system_names_are_known_after_a_renewal() -> None:
    """A filter on the envelope would lose notifications after another's name was dropped."""
    index: ct.Index[int] = new_index(False)
    index.add(0, ct.Filter("a = 1"))
    index.add(1, ct.Filter("@publisher = 'x'"))
    index.remove(1)
    index.renew()
    index.add(2, ct.Filter("@id = ''"))
    assert sorted(index.match({"a": 1})) == [0, 2]


@pytest.mark.parametrize("compiled", COMPILED)
def test_names_that_no_filter_asks_for_are_dropped_by_renewal(compiled: Any) -> None:
    """Subscriptions with ever new names would fill the memory."""
    index: ct.Index[str] = new_index(compiled)
    index.add("stays", ct.Filter("a = 1 and last contains 'x'"))
    for round_ in range(3):
        for number in range(200):
            index.add("k", ct.Filter({f"name {round_} {number}": 1, "a": 2}))
        index.renew()
        index.validate()
        assert index.statistics().attributes == 3
    index.begin_renewal()
    index.add("new", ct.Filter("a = 1 and fresh = 2"))
    index.add("k", ct.Filter("fresh = 2 and fresher = 3"))
    index.renew()
    index.validate()
    assert sorted(index.match({"a": 1, "last": "xy", "fresh": 2, "fresher": 3})) == [
        "k",
        "new",
        "stays",
    ]


@pytest.mark.parametrize("compiled", COMPILED)
def test_replaced_segments_are_freed_in_parts(compiled: Any) -> None:
    """An update would wait until all of a large index is freed."""
    index: ct.Index[int] = new_index(compiled)
    for number in range(1_000):
        index.add(number, ct.Filter({"a": f"text{number}"}))
    index.begin_renewal()
    while index.statistics().renewing:
        assert index.maintain(100)
    steps = 0
    while index.maintain(100):
        steps += 1
    assert steps >= 20, "1,000 texts, 100 at a time, and the arrays one by one"
    assert index.match({"a": "text7"}) == [7]
    index.validate()


def test_an_operator_that_updates_the_index_frees_no_arrays_in_use() -> None:
    """A batch would go on in memory that was freed, where one of its rows ends a renewal."""
    engine: ArrayEngine[int] = ArrayEngine()
    engine.add(1, (ct.Filter("a = 1"),))
    engine.begin_renewal()
    before = engine._segment
    seen: list[bool] = []

    def update(row: int) -> list[int]:
        engine.add(2 + row, (ct.Filter(f"b = {row}"),))
        seen.append(engine._segment is before)
        return [row]

    bad = spans_of([b"\xc1", b"\xc1"])  # The kernel leaves both rows to the model.
    assert [list(each) for each in engine._matched(bad, update)] == [[0, 1, 2], [0, 1]]
    assert seen == [True, True]
    while engine.maintain():
        pass
    assert engine._segment is not before
    assert sorted(engine) == [1, 2, 3]


@pytest.mark.parametrize("compiled", COMPILED)
def test_attributes_inside_objects_are_checked(compiled: Any) -> None:
    """An object would be skipped because no filter has its own name."""
    index = new_index(compiled)
    index.add(1, "place.city = 'Kiel'")
    index.add(2, "size > 3")
    assert index.match({"place": {"city": "Kiel"}, "size": 2, "unasked": 2**70}) == [1]
    assert index.match({"unasked": {"city": "Kiel"}, "size": 5}) == [2]


def renew(engine: Any) -> None:
    """Replaces the segment of an engine, and frees the former."""
    engine.begin_renewal()
    while engine.maintain():
        pass


class Collected:
    """An object that uses the engine when it is collected."""

    def __init__(self, use: Callable[[], None]) -> None:
        self.use, self.cycle = use, self

    def __del__(self) -> None:
        self.use()


@pytest.fixture
def _collector() -> Iterator[None]:
    """Collects as usual, once the test has ended."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


@needs_native
@pytest.mark.usefixtures("_collector")
@pytest.mark.parametrize("use", [lambda engine: engine.match({"b": 1}), renew])
def test_a_finalizer_leaves_a_match_as_it_is(use: Any) -> None:
    """A notification would get the keys of another one, or be matched in freed memory."""
    engine = new_engine(True)
    for key in range(40):
        engine.add(key, (ct.Filter({"a" if key < 20 else "b": 1}),))
    engine.match({"a": 1})
    for allocations in range(1, 40):
        gc.collect()
        gc.set_threshold(0)
        Collected(partial(use, engine))
        gc.set_threshold(allocations)
        found = engine.match({"a": 1})
        gc.set_threshold(0)
        assert sorted(found) == [*range(20)]


@needs_native
@pytest.mark.usefixtures("_collector")
def test_a_finalizer_that_matches_frees_no_budget() -> None:
    """A match returned steps that it never took, so a request could work without end: the match of
    the finalizer had removed the bound of the arrays.
    """
    engine = new_engine(True)
    engine.add(1, (ct.Filter("a > 3"),))
    for allocations in range(1, 40):
        gc.collect()
        gc.set_threshold(0)
        Collected(partial(engine.match, {"a": 5}))
        with Work("REQUEST_WORK_MAX", 1_000) as work:
            gc.set_threshold(allocations)
            with contextlib.suppress(InvalidNotificationError):
                engine.match({"a": 2**70})
            gc.set_threshold(0)
            assert work.left <= 1_000


@needs_native
def test_notifications_with_large_numbers_are_matched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Filters on times in nanoseconds, which are no doubles, would take half as long again: each
    notification would be matched twice, to verify what was found.
    """
    engine, taken = new_engine(True), list[object]()
    engine.add(1, (ct.Filter("ns > 5"),))
    of = module("array_engine", True)
    whole = of.found_keys

    def note(found: list[int], given: object, *others: Any) -> object:
        taken.append(given)
        return whole(found, given, *others)

    monkeypatch.setattr(of, "found_keys", note)
    large, small = {"ns": 2**60 + 1}, {"ns": 6}
    for given in (large, large, large, small, small, large):
        assert engine.match(given) == [1]
    assert taken == [large, small, large], "the one after a large one needs no look"


def _crowded(compiled: bool) -> Any:
    """An engine with filters that are to be moved to new bins."""
    engine = new_engine(compiled)
    for key in range(64):
        engine.add(key, (ct.Filter({"x": between(key, key + 2)}),))
    assert engine._segment.assignment.moving
    return engine


UPDATES: dict[str, Callable[[Any], object]] = {
    "match": lambda engine: engine.match({"x": 200}),
    "match_batch": lambda engine: engine.match_each([{"x": 200}]),
    "add": lambda engine: engine.add(100, (ct.Filter({"x": between(0, 200)}),)),
    "replace": lambda engine: engine.add(1, (ct.Filter({"x": between(3, 9)}),)),
    "add_encoded": lambda engine: engine.add_encoded(
        [100, 101], [to_msgpack(ct.Filter({"x": between(n, 200)})) for n in (0, 1)]
    ),
    "remove": lambda engine: engine.remove(5),
    "maintain": lambda engine: engine.maintain(3),
    "begin_renewal": lambda engine: engine.begin_renewal(),
}
MEANWHILE: dict[str, Callable[[Any], object]] = {
    "remove": lambda engine: [engine.remove(key) for key in (*range(20), *range(50, 64))],
    "renew": renew,
    "match": lambda engine: engine.match({"x": 30}),
}


@needs_native
@pytest.mark.slow
@pytest.mark.usefixtures("_collector")
@pytest.mark.parametrize("meanwhile", MEANWHILE)
@pytest.mark.parametrize("update", UPDATES)
def test_a_finalizer_does_not_divide_an_update(update: str, meanwhile: str) -> None:
    """A filter that is moved would be left behind in a bucket, or its removal raise an error."""
    for allocations in range(1, 60, 2):
        raised: list[BaseException] = []
        engine = _crowded(True)

        def use(engine: Any = engine, raised: list[BaseException] = raised) -> None:
            try:
                MEANWHILE[meanwhile](engine)
                engine.validate()
            except BaseException as error:  # noqa: BLE001 - a finalizer's error is only printed
                raised.append(error)

        gc.collect()
        gc.set_threshold(0)
        Collected(use)
        gc.set_threshold(allocations)
        UPDATES[update](engine)
        gc.set_threshold(0)
        gc.collect()
        assert not raised
        engine.validate()
        while engine.maintain():
            pass
        kept = {key: engine.members(key)[0] for key in engine}
        assert sorted(engine.match({"x": 30})) == naive(kept, ct.Notification({"x": 30}))


@pytest.mark.parametrize("update", ["remove", "add"])
@pytest.mark.parametrize("compiled", COMPILED)
def test_a_finalizer_of_a_key_may_use_the_index(update: str, compiled: bool) -> None:
    """The last reference to a key is that of the index: an update would run its finalizer."""
    engine = new_engine(compiled)

    class Key(str):
        __slots__ = ()

        def __del__(self) -> None:
            engine.add("late", (ct.Filter({"a": 3}),))
            engine.validate()
            seen.append(sorted(engine.match({"a": 3})))

    seen: list[list[str]] = []
    engine.add(Key("k"), (ct.Filter({"a": 3}),))
    engine.begin_renewal()
    if update == "add":  # The key stays, as in a dictionary.
        engine.add("k", (ct.Filter({"a": 3}), ct.Filter({"a": 4})))
        engine.validate()
        assert seen == []
    engine.remove("k")
    engine.validate()
    assert seen == [["late"]]
    assert sorted(engine.match({"a": 3})) == ["late"]
    while engine.maintain():
        pass
    assert sorted(engine.match({"a": 3})) == ["late"]


@needs_native
@pytest.mark.usefixtures("_collector")
def test_a_finalizer_leaves_a_slow_match_as_it_is() -> None:
    """A match within a budget would list the keys, or the doubts, of the finalizer's one."""
    engine = new_engine(True)
    for key in range(40):
        engine.add(key, (ct.Filter({"a" if key < 20 else "b": 1}),))
    for allocations in range(1, 40):
        gc.set_threshold(0)
        Collected(lambda: engine.match({"b": 1}))
        with Work("BUDGET", 10_000):
            gc.set_threshold(allocations)
            found = engine.match({"a": 1})
            gc.set_threshold(0)
        assert sorted(found) == [*range(20)]
        gc.collect()


LARGE = 2**54 + 1
ASKED: dict[str, Callable[[Any], list[Any]]] = {
    "match": lambda engine: engine.match({"a": LARGE}),
    "match_batch": lambda engine: list(engine.match_each([{"a": LARGE}] * 3)[1])[:20],
    "list": lambda engine: [*engine],
}


@needs_native
@pytest.mark.usefixtures("_collector")
@pytest.mark.parametrize("kind", ["objects", "integers"])
@pytest.mark.parametrize("asked", ASKED)
def test_a_finalizer_replaces_no_key_that_was_found(asked: str, kind: str) -> None:
    """A notification would be delivered for a key that got the slot of a removed one."""
    keys = [f"k{number}" if kind == "objects" else number for number in range(30)]
    old, new = (f"a = {LARGE}", f"b = {LARGE}") if kind == "objects" else (f"a >= {LARGE}", "b > 1")
    for allocations in range(1, 60):
        engine = new_engine(True)
        engine.add_encoded(keys[:20], [to_msgpack(ct.Filter(old))] * 20)

        def replace(engine: Any = engine) -> None:
            for key in keys[:20]:
                engine.remove(key)
            for key in keys[20:]:
                engine.add(key, (ct.Filter(new),))

        gc.collect()
        gc.set_threshold(0)
        Collected(replace)
        gc.set_threshold(allocations)
        found = ASKED[asked](engine)
        gc.set_threshold(0)
        gc.collect()
        after = keys[20:] if asked == "list" else []
        assert sorted(found, key=str) in (sorted(keys[:20], key=str), sorted(after, key=str))


@needs_native
@pytest.mark.usefixtures("_collector")
def test_a_finalizer_replaces_no_filter_that_is_decoded() -> None:
    """A key would have the filter of another one that got its slot."""
    one, two = ct.Filter("a = 1"), ct.Filter("a = 2")
    for allocations in range(1, 30):
        engine = new_engine(True)
        engine.add_encoded(["k"], [to_msgpack(one)])

        def replace(engine: Any = engine) -> None:
            engine.remove("k")
            engine.add("other", (two,))

        gc.collect()
        gc.set_threshold(0)
        Collected(replace)
        gc.set_threshold(allocations)
        try:
            assert engine.members("k") == (one,)
        except KeyError:
            assert [*engine] == ["other"]
        gc.set_threshold(0)
        gc.collect()


@needs_native
@pytest.mark.usefixtures("_collector")
def test_a_finalizer_leaves_a_batch_of_columns_as_it_is() -> None:
    """A batch would go on with the block of rows of another one."""
    pyarrow = pytest.importorskip("pyarrow")
    engine = new_engine(True)
    for key in range(100):
        engine.add(key, (ct.Filter({"a": key % 10}),))
    table = pyarrow.table({"a": [*range(20)] * 5})
    other = pyarrow.table({"b": [1.5] * 90, "a": [3] * 90})
    expected = [[*each] for each in engine.match_table(table)]
    for allocations in range(1, 130):
        fresh = new_engine(True)
        for key in range(100):
            fresh.add(key, (ct.Filter({"a": key % 10}),))
        gc.collect()
        gc.set_threshold(0)
        Collected(lambda engine=fresh: engine.match_table(other))  # type: ignore[misc]
        gc.set_threshold(allocations)
        found = fresh.match_table(table)
        gc.set_threshold(0)
        gc.collect()
        assert [[*each] for each in found] == expected
