"""`contrada pipeline run` of a run that kills itself: `STEP DESCRIPTION ADDRESS [--resume]`.

It dies in the middle of a step: of `match` when the second source is matched, and not yet noted;
of `write` between matches and quarantine; of `publish` when a subscriber has got some.
"""

import sys
import threading
from itertools import islice
from typing import Any, Final

from contrada.cli import main
from contrada.connections import connect_sync
from contrada.integrations.spark.pipeline import pipeline_results
from tests.integrations.spark.pipeline.killed_pipeline import die

GOT: Final = 700
"""Notifications that a subscriber has received by then: a call has 500, and a job all."""


def die_in_match() -> None:
    """Dies when outcomes of the second source are written."""
    results: Any = pipeline_results
    count, sources = results.counts_of, []

    def counted(*arguments: Any) -> Any:
        sources.append(arguments)
        if len(sources) > 1:
            die()
        return count(*arguments)

    results.counts_of = counted


def die_in_write() -> None:
    """Dies when the matches are written."""
    results: Any = pipeline_results
    write = results.write_parquet

    def written(*arguments: Any) -> None:
        write(*arguments)
        die()

    results.write_parquet = written


def die_in_publish(address: str) -> None:
    """Dies when a subscriber has received some notifications."""
    subscribed = threading.Event()

    def wait() -> None:
        with connect_sync(address) as service, service.subscribe("n any") as events:
            subscribed.set()
            for _ in islice(events, GOT):
                pass
            die()

    threading.Thread(target=wait, daemon=True).start()
    subscribed.wait()


if __name__ == "__main__":
    step, description, address, *options = sys.argv[1:]
    if step == "match":
        die_in_match()
    elif step == "write":
        die_in_write()
    else:
        die_in_publish(address)
    sys.argv[1:] = ["pipeline", "run", description, "--cores", "2", *options]
    main()
