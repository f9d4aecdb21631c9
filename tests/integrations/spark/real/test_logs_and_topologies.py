"""Logs, alerts and topologies through pipelines and `match`: the pairs of the embedded engine."""

import gzip
import itertools
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from contrada.integrations.files import BadRecord, ReadOptions, Record, read_file
from contrada.integrations.files.subscription_files import load_rules
from contrada.integrations.spark import Base
from contrada.integrations.spark.pipeline.pipeline_description import read_pipeline
from contrada.integrations.spark.pipeline.pipeline_run import run_pipeline
from contrada.model import Notification
from tests.integrations.spark.real.feeds import SharedData, packed
from tests.integrations.spark.real.test_matching_feeds import expected, keys_of
from tests.matching import rules_prometheus

Pairs = Counter[tuple[str, int]]
"""Subscriptions with the numbers of their records."""


def pairs_of_pipeline(
    spark: SparkSession, folder: Path, path: Path, subscriptions: str
) -> tuple[Pairs, int]:
    """Returns the pairs that a pipeline finds in a JSON lines file, and the number of bad
    records.
    """
    (folder / "p.toml").write_text(
        f'subscriptions = {subscriptions}\noutput = "out"\npartition = []\n'
        f'[[source]]\nname = "lines"\nformat = "jsonl"\npaths = ["{path}"]\n'
    )
    summary = run_pipeline(spark, read_pipeline(folder / "p.toml"))
    rows = pq.read_table(folder / "out" / "matches", columns=["subscription", "record"])
    return Counter(zip(*rows.to_pydict().values(), strict=True)), summary.sources[0].bad


def pairs_of(path: Path, wishes: Mapping[str, Any]) -> tuple[Pairs, int]:
    """Returns the pairs of the embedded engine."""
    read = list(read_file(path, "jsonl", ReadOptions()))
    good = [each for each in read if isinstance(each, Record)]
    keys = expected(wishes, (each.notification for each in good))
    pairs = ((key, each.number) for each, found in zip(good, keys, strict=True) for key in found)
    return Counter(pairs), sum(isinstance(each, BadRecord) for each in read)


BUTTONS: Final = {
    "lattes": "beverage = 'Latte' and quantity > 0",
    "hot and left": "beverageClass prefix 'Hot' and beverageSide = 'left'",
    "a quad": "quadId in (2, 4) and entityID suffix '2'",
    "late": "`@timestamp` >= '2018-03-01'",
    "what is not pressed": "index._index = 'elasticoffee' and index._id contains '7'",
    "no beverage": "beverage absent",
}


def test_buttons_give_the_pairs_of_the_embedded_engine(
    spark: SparkSession, shared_data: SharedData, tmp_path: Path
) -> None:
    """Lines of two shapes, and a malformed one, would be read differently in a pipeline."""
    path = shared_data("logs", "elasticoffee_iot_buttons.bulk.jsonl.gz")
    text = "".join(f"{name}: {wish}\n" for name, wish in BUTTONS.items())
    (tmp_path / "subs").write_text(text)
    pairs, bad = pairs_of(path, BUTTONS)
    assert bad == 1
    assert {name for name, _ in pairs} == {*BUTTONS}
    assert pairs_of_pipeline(spark, tmp_path, path, '"subs"') == (pairs, bad)


LINES: Final = {
    "apache_access_first6000.log.gz": {
        "images": "value contains '.png HTTP/1' and value contains '\" 200 '",
        "missing": "value matches '\" 404 [0-9]+ '",
        "robots": "value contains nocase 'bot'",
        "of a network": "value prefix '66.249.'",
        "without referer": 'value wildcard \'* "-" "*\'',
        "posts": "not (value contains '\"GET ') and value contains '\"POST '",
    },
    "linux_auth_firsthalf.log.gz": {
        "invalid": "value contains 'Invalid user'",
        "root": "value matches '(user|for) (invalid user )?root'",
        "of a day": "value >= 'Mar 28' and value < 'Mar 29'",
        "closed": "value suffix '[preauth]'",
        "others": "not (value contains 'sshd')",
    },
}


@pytest.mark.parametrize("name", LINES)
def test_lines_of_logs_give_the_keys_of_the_embedded_engine(
    spark: SparkSession, shared_data: SharedData, tmp_path: Path, name: str
) -> None:
    """A log line with quotes, brackets or raw bytes would be cut or decoded."""
    path = shared_data("logs", name)
    lines = gzip.decompress(path.read_bytes()).decode().removesuffix("\n").split("\n")
    keys = expected(LINES[name], (Notification({"value": each}) for each in lines))
    assert {key for each in keys for key in each} == {*LINES[name]}
    frame = spark.read.option("lineSep", "\n").text(str(path))
    assert keys_of(frame, Base(LINES[name], folder=tmp_path)) == keys


def test_alerts_give_the_pairs_of_the_embedded_engine(
    spark: SparkSession, shared_data: SharedData, tmp_path: Path
) -> None:
    """Alerts would fire for other samples in a pipeline."""
    path = shared_data("rules_other", "prometheus_rules.yml")
    alerts, refused = load_rules(path, "prometheus")
    assert (len(alerts), len(refused)) == (349, 806)
    read = rules_prometheus.rules(path)
    values = rules_prometheus.label_values(read)
    labels = {label: itertools.cycle(texts) for label, texts in values.items()}
    samples = [
        {"__name__": each.metric, "value": rules_prometheus.plain(each.number + beside)}
        | {label: text for label in labels if (text := next(labels[label])) is not None}
        for rule in read
        for each in rule
        for beside in (-1, 0, 1)
    ]
    text = "".join(f"{json.dumps(each)}\n" for each in samples)
    (tmp_path / "samples.jsonl").write_text(text)
    pairs, bad = pairs_of(tmp_path / "samples.jsonl", alerts)
    assert (len({name for name, _ in pairs}), bad) == (ALERTS_FIRED, 0)
    rules = f'[{{ file = "{path}", dialect = "prometheus" }}]'
    found = pairs_of_pipeline(spark, tmp_path, tmp_path / "samples.jsonl", rules)
    assert found == (pairs, bad)


ALERTS_FIRED: Final = 268
"""Alerts that some sample fires; the others need two metrics at once, or other labels."""

NETWORKS: Final = {
    "large": "size >= 100",
    "in America": "lon < -60 and lat between 24 and 50",
    "through Rome": "node = 'Rome' or node prefix 'Roma'",
    "long edges": "km > 1000 and size < 20",
    "of a library": "name prefix 'sndlib/'",
    "short edges": "km <= 10",
    "south": "lat < 0",
}


def test_topologies_give_the_keys_of_the_embedded_engine(
    spark: SparkSession, shared_data: SharedData, tmp_path: Path
) -> None:
    """One of many values in a row would be lost, or belong to another attribute."""
    path = shared_data("topologies", "topologies.jsonl.gz")
    read = list(map(json.loads, gzip.decompress(path.read_bytes()).decode().splitlines()))
    given = [
        Notification(
            {
                "name": each["name"],
                "size": len(each["nodes"]),
                "node": [node["name"] for node in each["nodes"]],
                "lon": [node["pos"][0] for node in each["nodes"]],
                "lat": [node["pos"][1] for node in each["nodes"]],
                "km": [float(edge[2]) for edge in each["edges"]],
            }
        )
        for each in read
    ]
    keys = expected(NETWORKS, given)
    assert {key for each in keys for key in each} == {*NETWORKS}
    frame = spark.read.json(str(path)).selectExpr(
        "name",
        "size(nodes) as size",
        "nodes.name as node",
        "transform(nodes, each -> each.pos[0]) as lon",
        "transform(nodes, each -> each.pos[1]) as lat",
        "transform(edges, each -> double(each[2])) as km",
    )
    base = Base(NETWORKS, folder=tmp_path)
    assert keys_of(frame, base) == keys
    assert keys_of(packed(spark, given), base) == keys


def test_a_topology_keeps_its_name_in_a_pipeline(
    spark: SparkSession, shared_data: SharedData, tmp_path: Path
) -> None:
    """A record that is mostly lists of objects would be bad, or lose its other values."""
    path = shared_data("topologies", "topologies.jsonl.gz")
    wishes = {"library": "name prefix 'sndlib/'", "zoo": "name prefix 'topozoo/' and nodes absent"}
    (tmp_path / "subs").write_text("".join(f"{name}: {wish}\n" for name, wish in wishes.items()))
    pairs, bad = pairs_of(path, wishes)
    assert {name for name, _ in pairs} == {*wishes}
    assert pairs_of_pipeline(spark, tmp_path, path, '"subs"') == (pairs, bad)
