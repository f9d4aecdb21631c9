"""`counts_of`: counts of outcomes by source; the summary of a run, and its reports."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that everyone gives it

from contrada.integrations.spark.pipeline.hadoop_paths import Folder
from contrada.integrations.spark.pipeline.pipeline_description import Source
from contrada.integrations.spark.pipeline.run_folder import write_atomically

REASONS_MAX: Final = 10
"""The most frequent reasons of a source's bad records. Beyond it: the quarantine has all."""


@dataclass(frozen=True, slots=True)
class SourceSummary:
    """The results of one source. `matched` counts notifications, not pairs. `reasons` are the most
    frequent reasons of bad records; `unmet` are attributes in options that no record had.
    """

    source: str
    read: int
    bad: int
    matched: int
    published: int
    seconds: float
    reasons: dict[str, int]
    unmet: tuple[str, ...]

    @property
    def rows_per_s(self) -> float:
        """Records read and matched per second."""
        return (self.read + self.bad) / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class PipelineSummary:
    """The results of a run: `matches` by subscription, `patterns` by pattern, the folder `output`,
    `stages` as seconds, `plan` as the way of matching by source, `refused` rules of other dialects,
    `versions` of a stream's subscriptions.
    """

    sources: tuple[SourceSummary, ...]
    matches: dict[str, int]
    published: int
    publish_seconds: float
    seconds: float
    output: str
    mode: str = "batch"
    run: str = ""
    batches: int = 0
    patterns: dict[str, int] = field(default_factory=dict)
    stages: dict[str, float] = field(default_factory=dict)
    plan: dict[str, str] = field(default_factory=dict)
    refused: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceCounts:
    """The counts of one source: `matches` by the positions of subscriptions. A sum has no
    `matches`, since positions differ between versions of the subscriptions.
    """

    read: int = 0
    bad: int = 0
    matched: int = 0
    matches: dict[int, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    unmet: tuple[str, ...] = ()
    seconds: float = 0.0

    def __add__(self, other: "SourceCounts") -> "SourceCounts":
        # Counts without any record do not restrict the attributes absent in both.
        unmet = [{*each.unmet} for each in (self, other) if each.read]
        return SourceCounts(
            self.read + other.read,
            self.bad + other.bad,
            self.matched + other.matched,
            reasons=Counter(self.reasons) + Counter(other.reasons),
            unmet=tuple(sorted(set.intersection(*unmet) if unmet else ())),
            seconds=self.seconds + other.seconds,
        )

    def with_bad(self, reason: str, count: int) -> "SourceCounts":
        """Returns the counts with more bad records for one reason."""
        reasons = Counter(self.reasons) + Counter({reason: count})
        return replace(self, bad=self.bad + count, reasons=dict(reasons))

    def summary(self, source: str, published: int = 0) -> SourceSummary:
        """Returns the summary of the source."""
        frequent = sorted(self.reasons.items(), key=lambda each: (-each[1], each[0]))
        counts = (self.read, self.bad, self.matched, published)
        reasons = dict(frequent[:REASONS_MAX])
        return SourceSummary(source, *counts, self.seconds, reasons, self.unmet)


def sum_rows(rows: Iterable[Sequence[Any]], names: Iterable[str]) -> dict[str, SourceCounts]:
    """Sums rows by source. A row has a source, a position (None is that of outcomes without a
    match), the sums of read and of bad records, the outcomes at the position, and those whose first
    position it is. Cost: linear in rows, of which there is one for each position.
    """
    sums: dict[str, list[int]] = {name: [0, 0, 0] for name in names}
    matches: dict[str, dict[int, int]] = {name: {} for name in sums}
    for source, position, read, bad, count, first in rows:
        of_source = sums[source]
        of_source[0] += read or 0
        of_source[1] += bad or 0
        of_source[2] += first
        if position is not None:
            matches[source][position] = count
    return {
        name: SourceCounts(read, bad, matched, matches[name])
        for name, (read, bad, matched) in sums.items()
    }


def counts_of(
    outcomes: DataFrame, sources: Iterable[Source], subscriptions: int
) -> dict[str, SourceCounts]:
    """Counts outcomes by source. Positions behind the subscriptions do not count. Cost: a job over
    the outcomes; further jobs if some are bad, or options name attributes.
    """
    # NULL is the position of rows without a match, so that one job counts all rows.
    at = F.explode_outer("subscriptions").alias("at")
    pairs = outcomes.select("source", "read", "bad", "subscriptions", at)
    counted = pairs.where(f"at is null or at < {subscriptions}").groupBy("source", "at")
    first = F.count_if(F.expr("at = subscriptions[0]"))
    rows = counted.agg(F.sum("read"), F.sum("bad"), F.count("at"), first).collect()
    sources = tuple(sources)
    found = sum_rows(rows, [each.name for each in sources])
    reasons = _reasons(outcomes) if any(each.bad for each in found.values()) else {}
    unmet = _unmet(outcomes, [each for each in sources if found[each.name].read])
    return {
        name: replace(each, reasons=reasons.get(name, {}), unmet=unmet.get(name, ()))
        for name, each in found.items()
    }


def _reasons(outcomes: DataFrame) -> dict[str, dict[str, int]]:
    """Returns the most frequent reasons of each source's bad records, with counts."""
    counted = outcomes.where("reason is not null").groupBy("source", "reason").count()
    found: dict[str, dict[str, int]] = {}
    nth = F.expr("row_number() over (partition by source order by count desc, reason)")
    for row in counted.withColumn("nth", nth).where(f"nth <= {REASONS_MAX}").collect():
        found.setdefault(row["source"], {})[row["reason"]] = row["count"]
    return found


def _unmet(outcomes: DataFrame, sources: list[Source]) -> Mapping[str, tuple[str, ...]]:
    """Returns the attributes in options of a source that no task has seen."""
    asked = [each.name for each in sources if each.reading.names_expected()]
    if not asked:
        return {}
    tasks = outcomes.where("read > 0 and unmet is not null").select("source", "unmet").collect()
    found: dict[str, set[str]] = {}
    for name, unmet in tasks:
        found[name] = found.get(name, set(unmet)) & set(unmet)
    return {name: tuple(sorted(found.get(name, ()))) for name in asked}


# --- reports --------------------------------------------------------------------------------------

SUBSCRIPTIONS_SHOWN_MAX: Final = 1_000
"""Subscriptions on the page, by matches. Beyond it: `report.json` has all of them."""


def write_report(summary: PipelineSummary, folder: Folder) -> None:
    """Writes `report.json` for programs and `report.html` for people, replacing former ones."""
    write_atomically(folder / "report.json", msgspec.json.format(msgspec.json.encode(summary)))
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    frequent = sorted(summary.matches.items(), key=lambda each: -each[1])[:SUBSCRIPTIONS_SHOWN_MAX]
    page = environment.get_template("report.html.jinja").render(summary=summary, frequent=frequent)
    write_atomically(folder / "report.html", page.encode())
