"""The plots of docs/benchmarks.md, drawn from the results of one run.

`draw_plots` returns the text of an SVG for each plot whose figures were measured. The same results
give the same text. A bar or line is Contrada or a peer; both scales of a plot that spans decades
are logarithmic.
"""

import io
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

if TYPE_CHECKING:
    from bench.benchmarks_page import Record

OWN: Final = "contrada"
COLOURS: Final = {
    OWN: "#c2410c",
    "nats": "#1d4ed8",
    "zenoh": "#0f766e",
    "redis": "#b91c1c",
    "mosquitto": "#7c3aed",
    "sqlite": "#475569",
    "zen-engine": "#0369a1",
    "event-ruler": "#a16207",
}
COSTS: Final = {
    "peers/sum": "batches of 100",
    "peers/gather": "single publications, 100 together",
    "peers/fan-out": "ten subscribers",
    "peers/lone-sum": "one at a time, 1,000 per second",
}
"""Figures of the processor time of a notification, with their names in the plot."""
SIZES: Final = "matching/size-"

STYLE: Final = {
    "font.size": 9,
    "svg.fonttype": "none",
    "svg.hashsalt": OWN,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}


def draw_plots(records: Iterable["Record"]) -> dict[str, str]:
    """Returns the SVG texts by the names of their files, without plots that lack their figures."""
    by_name = {each.name: each for each in records}
    costs = {COSTS[name]: _of_systems(by_name[name]) for name in COSTS if name in by_name}
    sizes = {
        int(name.removeprefix(SIZES).replace(",", "")): _of_systems(each)
        for name, each in by_name.items()
        if name.startswith(SIZES)
    }
    plots: dict[str, str] = {}
    if costs:
        plots["benchmarks-peers.svg"] = _draw_costs(costs)
    if len(sizes) > 1:
        plots["benchmarks-matching.svg"] = _draw_sizes(sizes)
    return plots


def _of_systems(record: "Record") -> dict[str, float]:
    """Returns the values of Contrada and of each comparison."""
    return {OWN: record.value} | record.compared


def _draw_costs(costs: Mapping[str, Mapping[str, float]]) -> str:
    with rc_context(STYLE):  # type: ignore[arg-type]
        drawing = Drawing(figsize=(7.2, 0.6 + 1.15 * len(costs)), layout="constrained")
        rows = drawing.subplots(len(costs), squeeze=False)[:, 0]
        for axes, (title, values) in zip(rows, costs.items(), strict=True):
            names = sorted(values, key=lambda name: values[name], reverse=True)
            bars = axes.barh(names, [values[name] for name in names], color=_colours(names))
            axes.bar_label(bars, fmt="%.3g", padding=3)
            axes.set_title(title, loc="left", fontsize=9)
            axes.tick_params(length=0)
            axes.set_xticks([])
            axes.spines["bottom"].set_visible(False)
        drawing.supxlabel("processor time of a delivery in µs, all processes", fontsize=9)
        return _svg(drawing)


def _draw_sizes(sizes: Mapping[int, Mapping[str, float]]) -> str:
    names = sorted({name for values in sizes.values() for name in values})
    with rc_context(STYLE):  # type: ignore[arg-type]
        drawing = Drawing(figsize=(7.2, 3.6), layout="constrained")
        axes: Axes = drawing.subplots()
        for name in names:
            held = sorted(size for size, values in sizes.items() if name in values)
            times = [sizes[size][name] for size in held]
            axes.loglog(held, times, marker="o", markersize=3, label=name, color=COLOURS.get(name))
        axes.set_xlabel("filters of two equalities, one of them matches")
        axes.set_ylabel("µs of a match")
        axes.grid(visible=True, which="major", linewidth=0.3)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        return _svg(drawing)


def _colours(names: Iterable[str]) -> list[str]:
    return [COLOURS.get(name, "#475569") for name in names]


def _svg(drawing: Drawing) -> str:
    picture = io.StringIO()
    drawing.savefig(picture, format="svg", metadata={"Date": None, "Creator": None})
    # Matplotlib ends some lines with a space, which checks of the repository refuse.
    return re.sub(r" +$", "", picture.getvalue(), flags=re.MULTILINE)
