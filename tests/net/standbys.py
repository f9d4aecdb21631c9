"""Brokers of one name on one database as processes: one leads, and one stands by."""

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Queue

from tests.asynchronous import TEST_S_MAX
from tests.net.test_neighbours import free_ports
from tests.own_operators import CONTRADA


class Member:
    """A broker process with --standby; `led` gets the time of each start as leader."""

    def __init__(self, port: int, url: str) -> None:
        options = ["--name", "desk", "--port", str(port), "--store", url, "--standby"]
        self.process = subprocess.Popen(
            [*CONTRADA, "serve", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.led: Queue[float] = Queue()
        self.log: Queue[str] = Queue()
        threading.Thread(target=self._follow).start()
        threading.Thread(target=self._follow_log).start()

    def _follow(self) -> None:
        for _ in self.process.stdout or ():
            self.led.put(time.monotonic())

    def _follow_log(self) -> None:
        for line in self.process.stderr or ():
            self.log.put(line)

    def logs(self, text: str) -> None:
        """Waits for a line of the log."""
        while text not in self.log.get(timeout=TEST_S_MAX):
            pass

    def end(self) -> None:
        """Ends the process, also a stopped one."""
        self.process.kill()
        self.process.communicate()


@contextmanager
def group(*urls: str) -> Iterator[tuple[str, list[Member]]]:
    """Yields the addresses of brokers, each with its URL of the one database, and the brokers.

    The first one leads.
    """
    ports = free_ports(len(urls))
    members: list[Member] = []  # Others may take the places of some.
    try:
        for port, url in zip(ports, urls, strict=True):
            members.append(Member(port, url))
            members[-1].logs("standby: another broker leads")
            if len(members) == 1:
                members[0].led.get(timeout=TEST_S_MAX)
        yield ",".join(f"contrada://127.0.0.1:{port}" for port in ports), members
    finally:
        for each in members:
            each.end()
