"""Charts of a sweep: the cost of each kind of network, by the number of parties."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from contrada.lab.simulation.overlay_cost import Cost

MEASURES: Final[dict[str, tuple[str, Callable[[Cost], float]]]] = {
    "notification": ("cost per notification", lambda cost: cost.per_notification),
    "subscription": ("cost per subscription", lambda cost: cost.per_subscription),
    "table": ("filters held by a server, mean", lambda cost: cost.table_mean),
    "total": ("cost in all, without link states", lambda cost: cost.total),
}
"""The charts: for each file its title and its measure."""

_DASHES: Final = {"plain": ":", "covering": "--", "merging": "-"}


def draw(costs: Sequence[Cost], folder: Path, form: str) -> list[Path]:
    """Draws a chart per measure into a folder, as `png` or `svg`. Returns the files."""
    # The library is large, and asked for only here.
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    rcParams["svg.hashsalt"] = "contrada"
    folder.mkdir(parents=True, exist_ok=True)
    lines = _lines(costs)
    families = dict.fromkeys(cost.plan.kind.name.rpartition(", ")[0] for cost in costs)
    colours = {name: f"C{place % 10}" for place, name in enumerate(families)}
    files = []
    for name, (title, figure_of) in MEASURES.items():
        figure = Figure(figsize=(10, 6), layout="constrained")
        axes = figure.subplots()
        for kind, row in lines.items():
            family, _, saving = kind.rpartition(", ")
            points = [(cost.plan.parties, figure_of(cost)) for cost in row]
            axes.plot(
                [x for x, _ in points],
                [y for _, y in points],
                label=kind,
                color=colours[family],
                linestyle=_DASHES[saving],
                marker="o",
                markersize=3,
            )
        axes.set(xscale="log", yscale="symlog", xlabel="interested parties", title=title)
        figure.legend(loc="outside right upper", fontsize="x-small")
        files.append(folder / f"overlay-{name}.{form}")
        figure.savefig(files[-1], metadata={"Date": None} if form == "svg" else None)
    return files


def _lines(costs: Sequence[Cost]) -> dict[str, list[Cost]]:
    lines: dict[str, list[Cost]] = {}
    for cost in sorted(costs, key=lambda cost: cost.plan.parties):
        lines.setdefault(cost.plan.kind.name, []).append(cost)
    return lines
