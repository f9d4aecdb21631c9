"""The writer of docs/benchmarks.md: `write_page` makes its text from the kept results.

`python -m bench.run --page` (`make benchmarks`) measures, keeps the results in
`bench/results.jsonl` and writes the page from them; nothing of it is typed. A run replaces the
figures that it measured, and leaves the others with the run that they are of. Each run begins with
the line of its conditions; then a line for each figure follows, as the runner prints it.

    python -m bench.benchmarks_page    # writes the page again from the kept results
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from bench import machine
from bench.benchmark_plots import draw_plots
from bench.harness import LIMITS, Result
from bench.java import has_java

RESULTS: Final = Path(__file__).with_name("results.jsonl")
PAGE: Final = RESULTS.parents[1] / "docs" / "benchmarks.md"
IMAGES: Final = PAGE.with_name("images")

NEED_JAVA: Final = ("spark/", "records/pipeline")
"""Beginnings of the names of figures that are left out where there is no Java."""
NO_JAVA: Final = "needs Java: `make java`"

CAPTIONS: Final = {
    "benchmarks-peers.svg": "Processor time of a delivery, Contrada and its peers",
    "benchmarks-matching.svg": "Time of a match by the number of filters, Contrada and its peers",
}
"""The plots of the page, with their descriptions; see `bench.benchmark_plots`."""

HEAD: Final = """# Benchmarks

`make benchmarks` measures, keeps the results in [results.jsonl](../bench/results.jsonl), and makes
this page; a test holds that both agree. With `ONLY=name` it measures some figures anew, and the
others stay as their run gave them: each figure names its run. `make bench` measures without a page.

A value is the median of its samples, with their quartiles in parentheses. It counts processor time
of all processes that the figure names, or as marked the clock, memory, or a number of things.
Values by the clock depend on the other work of the machine. A limit that is not met is bold.

The machines of the runs differ: their loop of Python tells how fast they were. A comparison is
measured in the same run, in turns with Contrada. The ratio is the median of the pairs, Contrada to
the first comparison. A peer is another system. A comparison without a version below is a baseline:
a part of Contrada's own work, or the same without an option.

All peers with JSON use orjson, and clients of asyncio use uvloop. The processor time of publisher,
server and subscriber is counted for every system. Peers select by a subject or topic, Contrada by a
content filter on two attributes.
"""

_UNITS: Final = {"us": "µs"}

_RUN: Final = b'{"date":'
"""Beginning of the line of a run's conditions."""


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the results: a figure as measured; see `bench.harness.Result.as_record`."""

    name: str
    value: float
    unit: str
    samples: int
    spread: tuple[float, float]
    counts: str
    more_is_better: bool
    workload: str
    at_most: float | None = None
    at_least: float | None = None
    ratio_at_most: float | None = None
    ratio_at_least: float | None = None
    holds: bool = True
    peer: str | None = None
    peer_value: float | None = None
    ratio: float | None = None
    others: dict[str, float] = {}

    @property
    def compared(self) -> dict[str, float]:
        """The values of all comparisons by name, the best first."""
        first = {} if self.peer is None or self.peer_value is None else {self.peer: self.peer_value}
        return first | self.others

    def advantage(self, peer: str) -> float:
        """Returns how many times better a comparison is: of the pairs for the first of them."""
        is_paired = peer == self.peer and self.ratio is not None
        ratio = self.ratio if is_paired else self.value / self.compared[peer]
        assert ratio is not None
        return 1 / ratio if self.more_is_better else ratio


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a run: when, where and with which versions it was made, and the figures
    that it did not measure, with the reasons.
    """

    date: str
    minutes: float
    machine: dict[str, str]
    peers: dict[str, str]
    unmeasured: dict[str, str]


class Run(msgspec.Struct, frozen=True):
    """A run with those of its figures that no later run has measured again."""

    conditions: Conditions
    records: list[Record]


def left_out(names: Iterable[str]) -> dict[str, str]:
    """Returns those of the figures that cannot be measured on this machine, with the reason."""
    if has_java():
        return {}
    return {name: NO_JAVA for name in names if name.startswith(NEED_JAVA)}


def keep_results(
    results: Iterable[Result], conditions: Conditions, known: Iterable[str], file: Path
) -> None:
    """Adds a run to the kept ones. Its figures replace those of earlier runs; figures that are not
    `known` any more go, and so do runs that have no figure left.
    """
    measured = [msgspec.convert(each.as_record(), Record) for each in results]
    stay = set(known) - {each.name for each in measured}
    earlier = [
        Run(run.conditions, [each for each in run.records if each.name in stay])
        for run in (read_results(file) if file.exists() else [])
    ]
    runs = [*(run for run in earlier if run.records), Run(conditions, measured)]
    lines = [line for run in runs for line in (run.conditions, *run.records)]
    file.write_bytes(msgspec.json.Encoder().encode_lines(lines))


def read_results(file: Path) -> list[Run]:
    """Returns the kept runs, the oldest first."""
    runs: list[Run] = []
    for line in file.read_bytes().splitlines():
        if line.startswith(_RUN):
            runs.append(Run(msgspec.json.decode(line, type=Conditions), []))
        else:
            runs[-1].records.append(msgspec.json.decode(line, type=Record))
    return runs


def versions_of_peers(results: Iterable[Result]) -> dict[str, str]:
    """Returns the versions of the peers that were measured."""
    seen = {name for each in results for name in (each.peer, *each.others)}
    return {name: machine.versions(of) for name, of in machine.PEERS.items() if name in seen}


def draw_runs(runs: Iterable[Run]) -> dict[str, str]:
    """Returns the SVG texts by the names of their files. A plot is of the newest run that has its
    figures, since values of different machines cannot be compared.
    """
    return {name: text for run in runs for name, text in draw_plots(run.records).items()}


def write_page(runs: Sequence[Run]) -> str:
    """Returns the text of the page."""
    sections = [
        ("Runs", _runs([run.conditions for run in runs])),
        ("In pictures", _pictures(runs)),
        ("Where a peer wins", _wins(runs)),
        ("Limits not met", _missed(runs)),
        ("Not measured", _not_measured(runs)),
        *((f"Figures: {area}", _figures(rows)) for area, rows in _by_area(runs).items()),
    ]
    return HEAD + "".join(f"\n## {title}\n\n{text}" for title, text in sections)


def _runs(runs: Sequence[Conditions]) -> str:
    names = dict.fromkeys(name for run in runs for name in run.machine)
    rows = [
        ("date", *(run.date for run in runs)),
        ("duration", *(f"{run.minutes:.0f} min" for run in runs)),
        *((name, *(run.machine.get(name, "") for run in runs)) for name in names),
        ("peers", *("; ".join(run.peers.values()) for run in runs)),
    ]
    return _table(("of the run", *map(str, range(1, len(runs) + 1))), rows)


def _pictures(runs: Sequence[Run]) -> str:
    drawn = draw_runs(runs)
    shown = [f"![{text}](images/{name})\n" for name, text in CAPTIONS.items() if name in drawn]
    return "\n".join(shown) or "None: their figures were not measured.\n"


def _wins(runs: Sequence[Run]) -> str:
    rows = []
    for run in runs:
        for each in run.records:
            ahead = [
                f"{peer} {each.advantage(peer):.3g}"
                for peer in each.compared
                if peer in run.conditions.peers and each.advantage(peer) > 1
            ]
            if ahead:
                rows.append((each.name, ", ".join(ahead)))
    return _table(("figure", "better peers, and how many times"), sorted(rows))


def _missed(runs: Sequence[Run]) -> str:
    names = sorted(each.name for run in runs for each in run.records if not each.holds)
    return f"Bold below: {', '.join(names)}.\n" if names else "None.\n"


def _not_measured(runs: Sequence[Run]) -> str:
    measured = {each.name for run in runs for each in run.records}
    peers = {name for run in runs for name in run.conditions.peers}
    rows = [
        *(row for row in runs[-1].conditions.unmeasured.items() if row[0] not in measured),
        *((f"beside {name}", "in no run") for name in machine.PEERS if name not in peers),
    ]
    return _table(("figures", "reason"), rows)


def _by_area(runs: Sequence[Run]) -> dict[str, list[tuple[int, Record]]]:
    """Returns the figures with the numbers of their runs, by the sorted names of their areas."""
    areas: dict[str, list[tuple[int, Record]]] = {}
    for number, run in enumerate(runs, start=1):
        for each in run.records:
            areas.setdefault(re.split(r"[/_]", each.name)[0], []).append((number, each))
    return dict(sorted(areas.items()))


def _figures(records: Iterable[tuple[int, Record]]) -> str:
    heads = ("figure", "workload", "value", "limit", "beside (ratio), best first", "run")
    rows = [
        (
            each.name,
            each.workload,
            f"{_shown(each)} ({_number(each.spread[0])}–{_number(each.spread[1])})",
            _limits(each) if each.holds else f"**{_limits(each)}**",
            _beside(each),
            str(number),
        )
        for number, each in records
    ]
    return _table(heads, rows)


def _limits(record: Record) -> str:
    signs = zip(LIMITS, ("≤", "≥", "ratio ≤", "ratio ≥"), strict=True)
    given = ((sign, getattr(record, name)) for name, sign in signs)
    return ", ".join(f"{sign} {limit:,g}" for sign, limit in given if limit is not None)


def _beside(record: Record) -> str:
    shown = [f"{name} {_number(value)}" for name, value in record.compared.items()]
    if record.ratio is not None:
        shown[0] += f" ({record.ratio:.3g})"
    return ", ".join(shown)


def _shown(record: Record) -> str:
    """Returns the value with its unit, and with its resource where that is not processor time."""
    counts = "" if record.counts == "processor" else f", {record.counts}"
    return f"{_number(record.value)} {_UNITS.get(record.unit, record.unit)}{counts}"


def _number(value: float) -> str:
    """Returns three digits, or all before the point."""
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return "None.\n"
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def main() -> None:
    """Writes the page and its plots from the kept results."""
    runs = read_results(RESULTS)
    drawn = draw_runs(runs)
    for name in CAPTIONS:
        (IMAGES / name).unlink(missing_ok=True)
    for name, text in drawn.items():
        (IMAGES / name).write_text(text, "utf-8")
    PAGE.write_text(write_page(runs), "utf-8")


if __name__ == "__main__":
    main()
