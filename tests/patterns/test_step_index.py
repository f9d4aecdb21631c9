"""Which steps rows match: by columns and by notifications alike."""

import random
from itertools import pairwise

import pyarrow as pa

from contrada.model import Envelope, Notification, Pattern
from contrada.model.codec import to_msgpack
from contrada.patterns.array_runs import StepIndex, group_name, packed_order
from contrada.patterns.reorder_buffer import order_of
from contrada.patterns.runs import COMBINATIONS, DEFAULT_LIMITS, TOO_LARGE, PatternLimits, RunBudget
from tests.patterns import streams


def steps_of(begins, steps) -> list[set[tuple[int, int]]]:  # type: ignore[no-untyped-def]
    """The steps of each row as (pattern, place)."""
    return [
        {
            (pattern, place)
            for pattern, bits in steps[begin:end].tolist()
            for place in range(64)
            if bits >> place & 1
        }
        for begin, end in pairwise(begins.tolist())
    ]


def test_steps_are_the_places_with_matching_filters() -> None:
    """A run would move by a filter that does not match, or stay."""
    chance = random.Random(1)
    patterns = [streams.pattern(chance) for _ in range(20)]
    notifications = streams.stream(chance, 200)
    index = StepIndex(patterns)
    offsets, filters = index.index.match_batch(notifications)
    for by, (rows, begins, steps) in zip(index.by, index.steps(offsets, filters), strict=True):
        found = dict(zip(rows.tolist(), steps_of(begins, steps), strict=True))
        for row, notification in enumerate(notifications):
            expected = {
                (number, place)
                for number, pattern in enumerate(patterns)
                if pattern.by == by
                for place in streams.places_of(pattern, notification)
            }
            assert found.get(row, set()) == expected


def test_a_pattern_of_most_parts_has_a_bit_for_each() -> None:
    """The last place would be lost, or be another one."""
    pattern = Pattern(" -> ".join(f"a = {place}" for place in range(64)))
    index = StepIndex([pattern])
    table = pa.table({"a": list(range(64))})
    ((rows, begins, steps),) = index.steps(*index.index.match_batch(table))
    assert rows.tolist() == list(range(64))
    assert steps_of(begins, steps & -1)[:63] == [{(0, place)} for place in range(63)]
    assert int(steps[63, 1]) == -(2**63)


def test_rows_have_each_group_of_a_notification() -> None:
    """A notification would take part in one of its groups only, or in one that it has not."""
    index = StepIndex([Pattern("a = 1 -> a = 2 by host, zone")])
    given = [
        Notification({"a": 1, "host": ["x", "y"], "zone": [1, 2.0]}),
        Notification({"a": 1, "host": "x"}),
        Notification({"a": 3, "host": "x", "zone": 1}),
    ]
    budget = RunBudget(PatternLimits(combinations_max=3))
    (rows,) = index.rows_of(given, budget)
    assert list(rows.groups.each()) == [
        group_name(("host", "zone"), ((6, host), (4, zone)))
        for host, zone in ((b"x", 1), (b"x", 2), (b"y", 1))
    ]
    assert list(rows.packed.each()) == [to_msgpack(given[0])] * 3
    assert budget.dropped == {COMBINATIONS: 1}


def test_large_notifications_take_no_part() -> None:
    """State would grow without bound."""
    index, budget = StepIndex([Pattern("a = 1 -> a = 2")]), RunBudget(DEFAULT_LIMITS)
    large = Notification({"a": 1}, body=b"x" * (budget.limits.notification_bytes_max + 1))
    (rows,) = index.rows_of([large, Notification({"a": 1})], budget)
    assert (rows.packed.size, budget.dropped) == (1, {TOO_LARGE: 1})


def test_bytes_are_ordered_as_their_notifications() -> None:
    """Ties would be ordered otherwise than the engine orders them."""
    envelopes = [
        Envelope(publisher=p, sequence=s, id=i) for p in "ab" for s in (1, 2) for i in "xy"
    ]
    given = [Notification({"a": a}, envelope=each) for each in envelopes for a in (1, "1")]
    assert sorted(map(to_msgpack, given), key=packed_order) == [
        to_msgpack(each) for each in sorted(given, key=order_of)
    ]
