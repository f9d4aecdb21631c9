"""The writer of docs/benchmarks.md: `write_page` makes its text from the results of one run.

`python -m bench.run --page` (`make benchmarks`) measures, keeps the results in
`bench/results.jsonl` and writes the page from them; nothing of it is typed. The first line of the
results has the conditions of the run, each other line is a figure's, as the runner prints it.

    python -m bench.benchmarks_page    # writes the page again from the kept results
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
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

CAPTIONS: Final = {
    "benchmarks-peers.svg": "Processor time of a delivery, Contrada and its peers",
    "benchmarks-matching.svg": "Time of a match by the number of filters, Contrada and its peers",
}
"""The plots of the page, with their descriptions; see `bench.benchmark_plots`."""

HEAD: Final = """# Benchmarks

`make benchmarks` measures, keeps the results in [results.jsonl](../bench/results.jsonl), and makes
this page from that one run; a test holds that both agree. `make bench` measures all figures, or
some by `ONLY=name`.

A value is the median of its samples, with their quartiles in parentheses. It counts processor time
of all processes that the figure names, or as marked the clock, memory, or a number of things.
Values by the clock depend on the other work of the machine. A limit that is not met is bold.

A comparison is measured in the same run, in turns with Contrada. The ratio is the median of the
pairs, Contrada to the first comparison. A peer is another system. A comparison without a version
below is a baseline: a part of Contrada's own work, or the same without an option.

All peers with JSON use orjson, and clients of asyncio use uvloop. The processor time of publisher,
server and subscriber is counted for every system. Peers select by a subject or topic, Contrada by a
content filter on two attributes.
"""

_UNITS: Final = {"us": "µs"}


class Record(msgspec.Struct, frozen=True, kw_only=True):
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
    """The first line of the results: when, where and with which versions the run was made."""

    date: str
    minutes: float
    machine: dict[str, str]
    peers: dict[str, str]
    left_out: dict[str, str]
    failed: dict[str, str]


def left_out(only: str) -> dict[str, str]:
    """Returns the names of figures that are left out of a run of some or all, with the reasons."""
    absent = {} if has_java() else dict.fromkeys(NEED_JAVA, "needs Java: `make java`")
    return absent | ({f"all but {only}": "not chosen for this run"} if only else {})


def is_left_out(name: str) -> bool:
    """Whether a figure cannot be measured on this machine."""
    return name.startswith(NEED_JAVA) and not has_java()


def keep_results(results: Sequence[Result], conditions: Conditions, file: Path) -> None:
    """Replaces the kept results by those of a run."""
    lines = [msgspec.to_builtins(conditions), *(each.as_record() for each in results)]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")


def read_results(file: Path) -> tuple[Conditions, list[Record]]:
    """Returns the kept results."""
    first, *others = file.read_bytes().splitlines()
    conditions = msgspec.json.decode(first, type=Conditions)
    return conditions, [msgspec.json.decode(line, type=Record) for line in others]


def versions_of_peers(results: Iterable[Result]) -> dict[str, str]:
    """Returns the versions of the peers that were measured."""
    seen = {name for each in results for name in (each.peer, *each.others)}
    return {name: machine.versions(of) for name, of in machine.PEERS.items() if name in seen}


def write_page(conditions: Conditions, records: Sequence[Record]) -> str:
    """Returns the text of the page."""
    sections = [
        ("Run", _run(conditions)),
        ("In pictures", _pictures(records)),
        ("Where a peer wins", _wins(conditions, records)),
        ("Limits not met", _missed(records)),
        ("Not measured", _not_measured(conditions)),
        *((_area(name), _figures(some)) for name, some in _by_area(records)),
    ]
    return HEAD + "".join(f"\n## {title}\n\n{text}" for title, text in sections)


def _run(conditions: Conditions) -> str:
    rows = [
        ("date", conditions.date),
        ("duration", f"{conditions.minutes:.0f} min"),
        *conditions.machine.items(),
        ("peers", "; ".join(conditions.peers.values())),
    ]
    return _table(("of the run", "value"), rows)


def _pictures(records: Sequence[Record]) -> str:
    drawn = draw_plots(records)
    shown = [f"![{text}](images/{name})\n" for name, text in CAPTIONS.items() if name in drawn]
    return "\n".join(shown) or "None: their figures are not in this run.\n"


def _wins(conditions: Conditions, records: Sequence[Record]) -> str:
    rows = []
    for each in records:
        ahead = [
            f"{peer} {each.advantage(peer):.3g}"
            for peer in each.compared
            if peer in conditions.peers and each.advantage(peer) > 1
        ]
        if ahead:
            rows.append((each.name, ", ".join(ahead)))
    return _table(("figure", "better peers, and how many times"), rows)


def _missed(records: Sequence[Record]) -> str:
    names = [each.name for each in records if not each.holds]
    return f"Bold below: {', '.join(names)}.\n" if names else "None.\n"


def _not_measured(conditions: Conditions) -> str:
    rows = [
        *conditions.left_out.items(),
        *conditions.failed.items(),
        *(
            (f"beside {name}", "not in this run")
            for name in machine.PEERS
            if name not in conditions.peers
        ),
    ]
    return _table(("figures", "reason"), rows)


def _figures(records: Iterable[Record]) -> str:
    heads = ("figure", "workload", "value", "limit", "beside (ratio), best first")
    rows = [
        (
            each.name,
            each.workload,
            f"{_shown(each)} ({_number(each.spread[0])}–{_number(each.spread[1])})",
            _limits(each) if each.holds else f"**{_limits(each)}**",
            _beside(each),
        )
        for each in records
    ]
    return _table(heads, rows)


def _by_area(records: Sequence[Record]) -> Iterator[tuple[str, Iterator[Record]]]:
    return groupby(records, lambda each: re.split(r"[/_]", each.name)[0])


def _area(name: str) -> str:
    return f"Figures: {name}"


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
    conditions, records = read_results(RESULTS)
    drawn = draw_plots(records)
    for name in CAPTIONS:
        (IMAGES / name).unlink(missing_ok=True)
    for name, text in drawn.items():
        (IMAGES / name).write_text(text, "utf-8")
    PAGE.write_text(write_page(conditions, records), "utf-8")


if __name__ == "__main__":
    main()
