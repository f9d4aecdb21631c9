"""Brokers and subscribers as processes that end with the test."""

import json
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.own_operators import CONTRADA

Process = subprocess.Popen[str]


WAIT_S = 20


def contrada(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CONTRADA, *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )


@contextmanager
def serving(*options: str, folder: Path | None = None) -> Iterator[tuple[Process, str]]:
    """Yields a broker and its address, and kills it at the end if it runs.

    It works in the folder, or in a temporary one.
    """
    command = [*CONTRADA, "serve", *options]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with (
        tempfile.TemporaryDirectory() as own,
        subprocess.Popen(command, cwd=folder or own, **pipes) as broker,  # type: ignore[call-overload]
    ):
        try:
            yield broker, broker.stdout.readline().strip()
        finally:
            broker.kill()
            broker.wait()


@contextmanager
def reading(filters: str, address: str) -> Iterator[Process]:
    """A subscriber that prints JSON until it is killed."""
    command = [*CONTRADA, "sub", filters, "--to", address, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def publish_until(subscriber: Process, address: str, value: int) -> None:
    """Publishes until the subscriber has printed it, which it does once it is all in force."""
    assert subscriber.stdout is not None
    has_come = threading.Event()

    def read() -> None:
        for line in subscriber.stdout or ():
            if json.loads(line)["a"] == value:
                has_come.set()
                return

    thread = threading.Thread(target=read)
    thread.start()
    for _ in range(200):
        assert contrada("pub", f"a={value}", "--to", address).returncode == 0
        if has_come.is_set():
            break
    thread.join(WAIT_S)
    assert has_come.is_set()
