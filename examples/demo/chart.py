"""Deliveries over the time of the events, as SVG for a page.

The colours are those of the page (`var(--ink)` and so on), so that one picture is right in light
and in dark. Matplotlib knows only fixed colours: it gets placeholders, which are then replaced.
"""

import io
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, DateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

BAR_WIDTH: Final = 0.86
"""Width of a bar as a part of its step; the rest is a gap."""

INK, FAINT, FILL = "#010203", "#040506", "#070809"
STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": FAINT,
    "grid.linewidth": 0.5,
    "xtick.color": INK,
    "ytick.color": INK,
    "timezone": "UTC",
}


@dataclass(frozen=True, slots=True)
class Series:
    """The times of the events of one subscriber."""

    name: str
    times: Sequence[datetime]


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the time axis: the beginning of a time's step, and of the next one.

    `label` formats a time on the axis.
    """

    unit: str
    label: str
    begin: Callable[[datetime], datetime]
    following: Callable[[datetime], datetime]


def _day(time: datetime) -> datetime:
    return datetime(time.year, time.month, time.day, tzinfo=UTC)


def _month(time: datetime) -> datetime:
    return datetime(time.year, time.month, 1, tzinfo=UTC)


DAY = Step("day", "%d %b", _day, lambda day: day + timedelta(days=1))
MONTH = Step("month", "%Y", _month, lambda month: _month(month + timedelta(days=31)))


def chart(series: Iterable[Series], step: Step, colour: str) -> str:
    """Returns an `<svg>` element with one panel for each series, above each other on one time axis.

    `colour` is the name of a CSS variable. The same series give the same text.
    """
    panels = list(series)
    with rc_context({**STYLE, "svg.hashsalt": colour}):
        figure = Figure(figsize=(6.4, 0.5 + 1.5 * len(panels)), layout="constrained")
        rows = figure.subplots(len(panels), sharex=True, squeeze=False)[:, 0]
        for axes, one in zip(rows, panels, strict=True):
            _panel(axes, one, step)
        picture = io.StringIO()
        figure.savefig(picture, format="svg", transparent=True, metadata={"Date": None})
    svg = picture.getvalue()
    for stand_in, name in ((INK, "ink"), (FAINT, "faint"), (FILL, colour)):
        svg = svg.replace(stand_in, f"var(--{name})")
    return svg[svg.index("<svg") :]


def _panel(axes: Axes, one: Series, step: Step) -> None:
    counts = Counter(step.begin(time) for time in one.times)
    starts = sorted(counts)
    # Steps without deliveries stay empty.
    widths = [BAR_WIDTH * (step.following(start) - start) for start in starts]
    axes.bar(starts, [counts[start] for start in starts], widths, align="edge", color=FILL)  # type: ignore[arg-type]
    axes.set_title(f"{one.name}: {len(one.times):,}")
    axes.set_ylabel(f"per {step.unit}")
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    locator = AutoDateLocator(maxticks=8)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(DateFormatter(step.label))  # type: ignore[no-untyped-call]
    axes.tick_params(length=0)
