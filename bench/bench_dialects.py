"""Other people's rules: how long it takes to read them and to put them into an index."""

import json
import os
import random
import tarfile
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Final

from bench.harness import Measurement, figure, time_per_call
from contrada.integrations.dialects import eventbridge, sigma, sql
from contrada.matching.index import Index
from contrada.model.algebra import sets
from contrada.model.rule import Rule

REPOSITORY: Final = Path(__file__).resolve().parents[1]
DATA: Final = Path(os.environ.get("CONTRADA_SHARED_DATA") or REPOSITORY.parent / "shared" / "data")
SAMPLES: Final = 3


def seconds(do: Callable[[], object]) -> float:
    """How long it takes, once."""
    start = process_time()
    do()
    return process_time() - start


def sigma_texts() -> list[str]:
    """The rules of the shared data, a text each."""
    with tarfile.open(DATA / "sigma" / "sigma_rules_raw.tar.xz", "r:xz") as archive:
        files = [archive.extractfile(each) for each in archive if each.name.endswith(".yml")]
        return [file.read().decode() for file in files if file is not None]


def sigma_index(texts: list[str]) -> Index[str]:
    """All rules that can be read, in an index that is ready to match."""
    index: Index[str] = Index()
    for text in texts:
        for rule in sigma.read_rules(text):
            if isinstance(rule, Rule):
                index.add(rule.name, rule.filters)
    index.match({"EventID": 1})
    return index


if DATA.exists():

    @figure(
        name="integrations/dialects/sigma",
        unit="s",
        workload="3,141 Sigma rules of YAML, read and indexed, of which 3,051 become 5,300 filters",
        at_most=20.0,
    )
    def sigma_rules() -> Measurement:
        texts = sigma_texts()
        return Measurement([seconds(lambda: sigma_index(texts)) for _ in range(SAMPLES)])


PATTERNS: Final = 100_000
SOURCES: Final = ("aws.ec2", "aws.s3", "custom.orders", "custom.pay")
KINDS: Final = ("created", "changed", "deleted", "failed", "retried")


def eventbridge_patterns() -> list[str]:
    """Patterns of every kind of match expression, no two alike."""
    chance = random.Random(4)
    details = (
        lambda n: {"id": [f"order-{n}"]},
        lambda n: {"amount": [{"numeric": [">", n / 7, "<=", n / 7 + 100]}]},
        lambda n: {"key": [{"prefix": f"logs/{n}/"}], "size": [{"exists": True}]},
        lambda n: {"name": [{"wildcard": f"*-{n}-*.json"}]},
        lambda n: {"address": [{"cidr": f"10.{n // 256 % 256}.{n % 256}.0/24"}]},
        lambda n: {"state": [{"anything-but": [f"state-{n}", "done"]}]},
        lambda n: {"$or": [{"a": [n]}, {"b": [{"equals-ignore-case": f"Name{n}"}]}]},
    )
    return [
        json.dumps(
            {
                "source": [chance.choice(SOURCES)],
                "detail-type": chance.sample(KINDS, 2),
                "detail": details[number % len(details)](number),
            }
        )
        for number in range(PATTERNS)
    ]


def eventbridge_index(texts: list[str]) -> Index[int]:
    """All patterns in an index that is ready to match."""
    index: Index[int] = Index()
    for number, text in enumerate(texts):
        index.add(number, eventbridge.read(text).filters)
    index.match({"source": "aws.ec2"})
    return index


@figure(
    name="integrations/dialects/eventbridge",
    unit="s",
    workload="100,000 EventBridge patterns of seven kinds, as JSON, read and indexed",
    at_most=20.0,
)
def eventbridge_rules() -> Measurement:
    texts = eventbridge_patterns()
    return Measurement([seconds(lambda: eventbridge_index(texts)) for _ in range(SAMPLES)])


@figure(
    name="integrations/dialects/sql",
    unit="ms",
    workload="one condition of six comparisons with AND, OR, NOT, IN, LIKE and BETWEEN, read",
)
def sql_conditions() -> Measurement:
    numbers = iter(range(10**6))

    def read() -> object:
        n = next(numbers)
        return sql.filters(
            f"kind = 'flight' AND (delay > {n} OR origin IN ('JFK', 'L{n}')) AND NOT (dest LIKE"
            f" 'B%{n}' OR price BETWEEN {n} AND {n + 5}) AND gate IS NOT NULL"
        )

    return Measurement(time_per_call(read, inner=50, repeats=20))


LINE: Final = (
    'powershell.exe -NoProfile -ExecutionPolicy Bypass -Command "Invoke-WebRequest -Uri '
    "https://example.org/files/update-2026.zip -OutFile C:\\Users\\Public\\update.zip; "
    'Expand-Archive"'
)


@figure(
    name="dialects/matches",
    unit="us",
    workload="a regular expression of five parts, without case, on a command line of 170 letters",
    at_most=20.0,
)
def expression_applied() -> Measurement:
    held = sets.matches(r"(?i)invoke-(web|rest)\w+\s.*https?://[a-z.]+/(\w+/)*[\w-]+\.(zip|rar)\b")
    assert held.contains(LINE)
    return Measurement(time_per_call(lambda: held.contains(LINE), inner=200, repeats=50))


@figure(
    name="dialects/wildcard",
    unit="us",
    workload="a wildcard of four parts, without case, on a command line of 170 letters",
    at_most=10.0,
)
def wildcard_applied() -> Measurement:
    held = sets.wildcard("*invoke-*https://*.zip*expand-*", nocase=True)
    assert held.contains(LINE)
    return Measurement(time_per_call(lambda: held.contains(LINE), inner=200, repeats=50))
