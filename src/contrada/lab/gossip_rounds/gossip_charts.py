"""Charts of the figures: simulation with its intervals, and analysis, in one plot."""

from collections.abc import Sequence
from pathlib import Path

from contrada.lab.gossip_rounds.gossip_figures import CONFIDENCE, FigureRow, GossipFigure


def draw_figure(figure: GossipFigure, rows: Sequence[FigureRow], file: Path) -> None:
    """Draws a figure into a file, as `png` or `svg`: points are simulated, lines calculated."""
    # The library is large, and asked for only here.
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    rcParams["svg.hashsalt"] = "contrada"
    drawn = Figure(figsize=(8, 5), layout="constrained")
    axes = drawn.subplots()
    curves: dict[str, list[FigureRow]] = {}
    for row in rows:
        curves.setdefault(row.curve, []).append(row)
    for place, (name, points) in enumerate(curves.items()):
        colour, label = f"C{place}", f", {name}" if name else ""
        x = [row.x for row in points]
        # Rounded means lie a hair outside of intervals that are points.
        below = [max(0.0, row.simulated - row.low) for row in points]
        above = [max(0.0, row.high - row.simulated) for row in points]
        mean = [row.simulated for row in points]
        known = [each < float("inf") for each in (*below, *above)]
        errors = [below, above] if all(known) else None
        label_simulated = f"simulated, {CONFIDENCE:.0%} intervals{label}"
        axes.errorbar(
            x, mean, errors, fmt="o", color=colour, markersize=3, capsize=2, label=label_simulated
        )
        axes.plot(x, [row.refined for row in points], color=colour, label=f"refined{label}")
        printed = [row.printed for row in points]
        axes.plot(x, printed, color=colour, linestyle=":", label=f"as printed{label}")
    axes.set(xlabel=figure.varied, ylabel=figure.measure)
    title = f"Figure {figure.name}: {figure.title} ({rows[0].runs} runs a point)"
    axes.set_title(f"{title}\n{figure.group}")
    axes.legend(fontsize="small")
    drawn.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)
