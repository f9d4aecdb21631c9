"""`contrada pipeline run` of a stream that kills itself: `DESCRIPTION BATCH before|behind STEP`."""

import os
import signal
import sys
from typing import Any

from pyspark import SparkContext

from contrada.cli import main
from contrada.integrations.spark.pipeline import pipeline_stream


def kill_at(batch: int, when: str, step: str) -> None:
    """Kills the driver and Java before or after a step of a micro-batch."""
    do = getattr(pipeline_stream._MicroBatches, step)

    def done(self: Any, *arguments: Any) -> Any:
        is_last = batch in arguments
        if is_last and when == "before":
            die()
        found = do(self, *arguments)
        if is_last:
            die()
        return found

    setattr(pipeline_stream._MicroBatches, step, done)


def die() -> None:
    """Kill -9 of both."""
    assert SparkContext._gateway is not None
    os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    description, batch, when, step = sys.argv[1:]
    kill_at(int(batch), when, step)
    sys.argv[1:] = ["pipeline", "run", description, "--cores", "2"]
    main()
