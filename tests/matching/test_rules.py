"""The index on rule sets and events as they are found in the world.

Sigma rules on Windows events, with pairs that another engine has found; Prometheus alerts on
measured series, with an evaluation that knows nothing of filters.
"""

import csv
import gzip
import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pytest

import contrada as ct
from tests.matching import rules_prometheus, rules_sigma
from tests.matching.engines import new_index

SharedData = Callable[..., Path]

WINDOWS_RULES: Final = 2_191
SIGMA_PAIRS: Final = 685
EVENTS: Final = 90_700
EVENTS_SAMPLED: Final = 40
PLAIN_EVERY: Final = 4

PROMETHEUS_RULES: Final = 347
NOTIFICATIONS_ASKED_NAIVELY: Final = 2_000

SERIES: Final = (
    "Twitter_volume_AAPL",
    "Twitter_volume_AMZN",
    "Twitter_volume_CRM",
    "Twitter_volume_FB",
    "Twitter_volume_PFE",
    "Twitter_volume_UPS",
    "cpu_utilization_asg_misconfiguration",
    "ec2_cpu_utilization_24ae8d",
    "ec2_cpu_utilization_53ea38",
    "ec2_cpu_utilization_825cc2",
    "ec2_cpu_utilization_fe7f93",
    "ec2_disk_write_bytes_1ef3de",
    "ec2_network_in_257a54",
    "elb_request_count_8c0756",
    "exchange-2_cpc_results",
    "exchange-2_cpm_results",
    "grok_asg_anomaly",
    "occupancy_6005",
    "rds_cpu_utilization_cc0c53",
    "rogue_agent_key_hold",
    "speed_6005",
    "TravelTime_387",
)
"""The series for metrics: the n-th metric in the rules has the n-th of these, then from the first
again."""

pytestmark = pytest.mark.slow


class Windows(NamedTuple):
    """The rules for Windows, the index of them, and the events by file."""

    rules: dict[str, rules_sigma.Rule]
    matcher: ct.Index[str]
    events: dict[str, list[dict[str, Any]]]
    expected: set[rules_sigma.Pair]


def index_of(rules: Iterable[rules_sigma.Rule], compiled: bool = True) -> ct.Index[str]:
    index: ct.Index[str] = new_index(compiled)
    for rule in rules:
        index.add(rule.id, rule.matches)
    return index


@pytest.fixture(scope="module")
def windows(shared_data: SharedData) -> Windows:
    every = rules_sigma.rules(shared_data("sigma", "sigma_filters.jsonl.gz"))
    rules = {rule.id: rule for rule in every if rule.product == "windows"}
    files = rules_sigma.event_files(shared_data("windows_events"))
    return Windows(
        rules,
        index_of(rules.values()),
        {path.name.removesuffix(".jsonl.gz"): rules_sigma.events(path) for path in files},
        set().union(*map(rules_sigma.expected, files)),
    )


def test_sigma_rules_match_the_windows_events_that_are_known(
    shared_data: SharedData, windows: Windows
) -> None:
    """Rules of thousands of conjunctions, without case and with negations, would match wrongly."""
    assert len(windows.rules) == WINDOWS_RULES
    assert sum(map(len, windows.events.values())) == EVENTS
    found = {
        (name, line, key)
        for name, events in windows.events.items()
        for line, event in enumerate(events)
        for key in windows.matcher.match(event)
        if windows.rules[key].path.startswith("rules/")  # the sources of the known values
    }
    assert len(windows.expected) == SIGMA_PAIRS
    assert found == windows.expected


def sampled(windows: Windows, count: int) -> list[dict[str, Any]]:
    """Events at equal distances, and the first that each rule is known to match."""
    first = {key: (name, line) for name, line, key in sorted(windows.expected, reverse=True)}
    known = [windows.events[name][line] for name, line in sorted(set(first.values()))]
    every = list(itertools.chain.from_iterable(windows.events.values()))
    return [*known, *every[:: len(every) // count]]


def test_sigma_rules_match_as_each_filter_says(shared_data: SharedData, windows: Windows) -> None:
    """The index would differ from the filters where the known pairs do not reach."""
    matched = 0
    for event in sampled(windows, EVENTS_SAMPLED):
        notification = ct.Notification(event)
        naive = {key for key, rule in windows.rules.items() if rule.matches.matches(notification)}
        assert set(windows.matcher.match(notification)) == naive
        matched += len(naive)
    assert matched > EVENTS_SAMPLED


def test_sigma_rules_match_alike_in_plain_python_and_after_a_renewal(
    shared_data: SharedData, windows: Windows
) -> None:
    """Kernels that are not compiled, or places chosen anew, would match otherwise."""
    plain = index_of(windows.rules.values(), compiled=False)
    events = sampled(windows, EVENTS_SAMPLED)
    before = [sorted(windows.matcher.match(event)) for event in events]
    windows.matcher.renew()
    assert [sorted(windows.matcher.match(event)) for event in events] == before
    some = slice(None, None, PLAIN_EVERY)  # since it is slow
    assert [sorted(plain.match(event)) for event in events[some]] == before[some]
    assert windows.matcher.statistics().is_compiled
    assert not plain.statistics().is_compiled


# --- Prometheus ---------------------------------------------------------------------------------


def series_of(rules: Iterable[rules_prometheus.Rule]) -> dict[str, str]:
    """The series of each metric."""
    metrics = dict.fromkeys(each.metric for rule in rules for each in rule)
    return dict(zip(metrics, itertools.cycle(SERIES), strict=False))


def columns(path: Path) -> dict[str, Any]:
    """The values of the series, all as long as the longest, with NaN behind the end."""
    found: dict[str, list[float]] = {name: [] for name in SERIES}
    with gzip.open(path, "rt", encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            if row["series"] in found:
                found[row["series"]].append(float(row["value"]))
    length = max(map(len, found.values()))
    return {
        name: np.array(values + [np.nan] * (length - len(values))) for name, values in found.items()
    }


def notification_at(
    row: int, values: dict[str, Any], labels: dict[str, list[str | None]]
) -> dict[str, ct.Value]:
    """The values of one row that are there."""
    attributes: dict[str, ct.Value] = {
        name: rules_prometheus.plain(float(column[row]))
        for name, column in values.items()
        if not np.isnan(column[row])
    }
    given = {label: column[row] for label, column in labels.items()}
    return attributes | {label: text for label, text in given.items() if text is not None}


def test_prometheus_rules_match_as_their_queries_say(shared_data: SharedData) -> None:
    """Thresholds, conjunctions, and labels that differ or are absent would match wrongly."""
    rules = rules_prometheus.rules(shared_data("rules_other", "prometheus_rules.yml"))
    assert len(rules) == PROMETHEUS_RULES
    series = series_of(rules)
    values = columns(shared_data("nab_timeseries", "nab_real_series.csv.gz"))
    rows = len(values[SERIES[0]])
    # Lists of different lengths, repeated, give ever other combinations.
    labels = {
        label: list(itertools.islice(itertools.cycle(texts), rows))
        for label, texts in rules_prometheus.label_values(rules).items()
    }
    table = [rules_prometheus.holds(rule, series, values, labels) for rule in rules]
    filters = [rules_prometheus.filter_of(rule, series) for rule in rules]
    index: ct.Index[int] = new_index(True)
    for number, each in enumerate(filters):
        index.add(number, each)
    counts: Counter[int] = Counter()
    for row in range(rows):
        given = notification_at(row, values, labels)
        found = index.match(given)
        assert sorted(found) == np.flatnonzero([holds[row] for holds in table]).tolist()
        counts.update(found)
        if row % (rows // NOTIFICATIONS_ASKED_NAIVELY) == 0:
            notification = ct.Notification(given)
            naive = [n for n, each in enumerate(filters) if each.matches(notification)]
            assert sorted(found) == naive
    assert len(counts) > PROMETHEUS_RULES // 2
