"""`main`: a process that simulates and calculates a gossip figure of the thesis for the console.

It reads a `FigureRequest` as JSON, and writes lines of JSON: the figure, then each point as it is
ready. A point is the row that `contrada simulate gossip --json` prints for the same parameters. A
process of its own can be ended at any time, and takes nothing of the broker's event loop.

Source: EPFL 2503 §6.5.3, §6.5.4.
"""

import os
import resource
import sys
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from contrada.errors import ContradaError, InvalidValueError, LimitError
from contrada.gossip.parameters import check_interest
from contrada.lab.gossip_rounds.gossip_figures import GossipFigure, analyse, figures, row_of
from contrada.lab.gossip_rounds.gossip_runs import disseminate

FIGURE_RUNS_MAX: Final = 1_000
"""Runs of each point of a figure in the console. Beyond it: refused."""

FIGURE_GOSSIPERS_MAX: Final = 1_000_000
"""Participants of a group of a figure in the console. Beyond it: refused."""

FIGURE_BYTES_MAX: Final = 2 * 2**30
"""Bytes of a process that simulates a figure. Beyond it: it ends, and the console says so."""

FIGURE_CPU_S_MAX: Final = 600
"""Processor seconds of such a process. Beyond it: the system ends it, if its gateway did not."""

_NICER: Final = 10  # Brokers of the machine come first.
_OWN: Final = ("figure", "runs", "seed", "interest")


class FigureRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A figure, as the options of `contrada simulate gossip`; parameters in None are its own."""

    figure: str
    runs: int = 30
    seed: int = 0
    interest: float = 0.2
    branching: int | None = None
    levels: int | None = None
    redundancy: int | None = None
    fanout: int | None = None
    loss: float | None = None
    crashes: float | None = None
    audience: int | None = None
    rounds: int | None = None

    def chosen(self) -> GossipFigure:
        """Returns the figure. Raises InvalidValueError, LimitError."""
        if not 1 <= self.runs <= FIGURE_RUNS_MAX:
            raise LimitError("FIGURE_RUNS_MAX", FIGURE_RUNS_MAX, self.runs)
        given = {
            name: value
            for name, value in msgspec.structs.asdict(self).items()
            if name not in _OWN and value is not None
        }
        every = figures(given, check_interest(self.interest))
        if self.figure not in every:
            raise InvalidValueError(self.figure, f"expected a figure: {', '.join(every)}")
        found = every[self.figure]
        most = max(point.parameters.participants for point in found.points)
        if most > FIGURE_GOSSIPERS_MAX:
            raise LimitError("FIGURE_GOSSIPERS_MAX", FIGURE_GOSSIPERS_MAX, most)
        return found


def events_of(request: FigureRequest) -> Iterator[tuple[str, Any]]:
    """Yields the figure, then its points as rows. Raises InvalidValueError, LimitError."""
    figure = request.chosen()
    about = {"points": len(figure.points), "varied": figure.varied, "measure": figure.measure}
    yield "figure", about | {"title": figure.title, "group": figure.group}
    for point in figure.points:
        ran = [disseminate(plan) for plan in point.plans(request.runs, request.seed)]
        yield "point", row_of(figure, analyse(point), ran)


def main() -> None:
    """Answers the request on standard input. An error is the last line."""
    os.nice(_NICER)
    resource.setrlimit(resource.RLIMIT_AS, (FIGURE_BYTES_MAX, FIGURE_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CPU, (FIGURE_CPU_S_MAX, FIGURE_CPU_S_MAX))
    try:
        request = msgspec.json.decode(sys.stdin.buffer.read(), type=FigureRequest)
        for event in events_of(request):
            _write(*event)
    except (ContradaError, msgspec.DecodeError) as error:
        _write("error", str(error))
    except MemoryError:
        _write("error", str(LimitError("FIGURE_BYTES_MAX", FIGURE_BYTES_MAX)))


def _write(name: str, content: Any) -> None:
    sys.stdout.buffer.write(msgspec.json.encode((name, content)) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
