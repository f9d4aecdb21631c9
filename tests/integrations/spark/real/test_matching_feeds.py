"""Real data through `match` and `route`: the pairs of the embedded engine, one for one."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from contrada.integrations.dialects import eventbridge
from contrada.integrations.spark import Base, match, plan, route
from contrada.integrations.spark.transforms.frame_match import PREDICATES_MAX
from contrada.integrations.spark.transforms.frames import frame_of
from contrada.integrations.spark.transforms.spark_predicates import predicate_of
from contrada.matching.index import Index
from contrada.model import Notification
from contrada.model.algebra.filter import selection
from contrada.model.rule import RefusedRule, Rule, read_or_refuse
from tests.integrations.dialects.test_sigma_data import (
    EVENTS,
    PAIRS,
    PAIRS_NOT_TRIED,
    for_windows,
    read_events,
    read_rules,
)
from tests.integrations.spark.real.feeds import FEEDS, SharedData, packed


def expected(wishes: Mapping[str, Any], given: Iterable[Notification]) -> list[list[str]]:
    """Returns the keys that the embedded engine finds, in the order of the subscriptions."""
    index: Index[str] = Index()
    for key, wish in wishes.items():
        index.add(key, wish)
    place = {key: number for number, key in enumerate(wishes)}
    return [sorted(index.match(each), key=place.__getitem__) for each in given]


@pytest.mark.parametrize("name", FEEDS)
def test_feeds_give_the_pairs_of_the_embedded_engine(
    spark: SparkSession, shared_data: SharedData, tmp_path: Path, name: str
) -> None:
    """Spark would read a real value differently, packed or in columns."""
    feed = FEEDS[name]
    given = feed.notifications(shared_data)
    assert len(given) == feed.rows
    keys = expected(feed.wishes, given)
    assert {key for each in keys for key in each} == {*feed.wishes}
    base = Base(feed.wishes, folder=tmp_path)
    assert keys_of(packed(spark, given), base) == keys
    wide = feed.frame(spark, str(shared_data(*feed.path)))
    keys = expected(feed.wishes, map(without_null, given))
    assert keys_of(wide, base) == keys
    few = of_predicates(wide, feed.wishes)
    assert plan(wide, Base(few, folder=tmp_path), zone="UTC").way == "predicates"
    routed = (
        wide.transform(route(Base(few, folder=tmp_path), zone="UTC"))
        .groupBy("subscription")
        .count()
        .collect()
    )
    counted = Counter(key for each in keys for key in each if key in few)
    assert {row["subscription"]: row["count"] for row in routed} == counted


def of_predicates(frame: DataFrame, wishes: Mapping[str, str]) -> dict[str, str]:
    """Returns subscriptions that equal Spark predicates on the columns of a frame."""
    described = frame_of(frame, zone="UTC")
    equal = (key for key in wishes if predicate_of(selection(wishes[key]), described) is not None)
    return {key: wishes[key] for key in islice(equal, PREDICATES_MAX // 2)}


def without_null(given: Notification) -> Notification:
    """Returns a row of columns: NULL is absent."""
    return Notification({name: v for name, v in given.attributes.items() if v is not None})


def keys_of(frame: DataFrame, base: Base) -> Any:
    """Returns the keys that `match` finds for each row."""
    found = frame.transform(match(base, zone="UTC")).select("subscriptions").toArrow()
    return found.column(0).to_pylist()


def test_sigma_rules_match_equally_in_a_frame(
    spark: SparkSession, shared_data: SharedData, tmp_path: Path
) -> None:
    """Rules would match other events on Spark than here, or than in their own tools."""
    rules = for_windows(read_rules(shared_data("sigma", "sigma_rules_raw.tar.xz")))
    events = read_events(shared_data("windows_events"))
    keys = expected(rules, events.values())
    assert len(keys) == EVENTS
    assert sum(map(len, keys)) == PAIRS + PAIRS_NOT_TRIED
    frame = packed(spark, events.values())
    assert keys_of(frame, Base(rules, folder=tmp_path)) == keys


def test_event_patterns_match_equally_in_a_frame(
    spark: SparkSession, shared_data: SharedData, tmp_path: Path
) -> None:
    """A rule with a residue, or one on null, would match other events on Spark."""
    path = shared_data("eventbridge_patterns", "event_pattern_cases.jsonl")
    cases = {each["name"]: each for each in map(json.loads, path.read_text("utf-8").splitlines())}
    read = {
        name: read_or_refuse("", partial(eventbridge.read, case["pattern"]))
        for name, case in cases.items()
    }
    rules = {name: rule for name, rule in read.items() if isinstance(rule, Rule)}
    refused = {name for name, rule in read.items() if isinstance(rule, RefusedRule)}
    assert refused == {n for n, case in cases.items() if case["expected"] == "invalid_pattern"}
    events = [
        (name, each) for name in cases for each in eventbridge.notifications(cases[name]["event"])
    ]
    keys = expected(rules, [each for _, each in events])
    found = keys_of(packed(spark, [each for _, each in events]), Base(rules, folder=tmp_path))
    assert found == keys
    own = {name for (name, _), of in zip(events, found, strict=True) if name in of}
    assert own == {name for name, case in cases.items() if case["expected"] == "match"}
