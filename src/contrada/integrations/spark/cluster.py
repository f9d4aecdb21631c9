"""Commands for a Spark cluster on this machine: a standalone master and workers, as processes.

For trials and tests: all processes listen on loopback, and end with the command that started them.
Each runs the installed PySpark.
"""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"

MASTER_AT: Final = re.compile(r"Starting Spark master at (spark://\S+)")
"""The master's log line when it listens."""

REGISTERED: Final = "Successfully registered with master"
"""The worker's log line when the master has accepted it."""


def spark_home() -> Path:
    """Returns the directory of the installed PySpark."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def master_command(port: int) -> Sequence[str]:
    """Returns the command for a master at a port of this machine; 0 is a free one."""
    return _command("master.Master", "--host", HOST, "--port", str(port), "--webui-port", "0")


def worker_command(master: str, cores: int, memory: str, folder: Path) -> Sequence[str]:
    """Returns the command for a worker with cores, memory (as `2g`) and a folder for its files."""
    work = ("--work-dir", str(folder), "--webui-port", "0")
    offers = ("--cores", str(cores), "--memory", memory)
    return _command("worker.Worker", "--host", HOST, *work, *offers, master)


def _command(main: str, *arguments: str) -> Sequence[str]:
    launch = str(spark_home() / "bin" / "spark-class")
    tied = (sys.executable, "-m", "contrada.integrations.spark.cluster")
    return [*tied, launch, f"org.apache.spark.deploy.{main}", *arguments]


def environment(folder: Path) -> Mapping[str, str]:
    """Returns the environment of the processes; they write below `folder`."""
    return {
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_DIRS": str(folder),
        "SPARK_LOCAL_IP": HOST,
        "SPARK_DAEMON_MEMORY": "256m",
        "PATH": os.environ.get("PATH", os.defpath),
    }


def run_tied() -> None:
    """Runs a command that ends with standard input: Java would outlive a killed parent process."""
    with subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL) as process:
        signal.signal(signal.SIGTERM, lambda number, frame: process.terminate())

        def watch() -> None:
            sys.stdin.buffer.read()
            process.terminate()

        threading.Thread(target=watch, daemon=True).start()
        status = process.wait()
    sys.exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    run_tied()
