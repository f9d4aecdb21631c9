"""Networks of machines on this one: a network namespace for each broker, with links to be cut.

Each link between brokers is a pair of virtual devices, and so is the access of the clients of each
broker, which are in this namespace. So a cut link separates only its brokers. With `netem` in the
kernel, packets of links are delayed and lost; without it links have little bandwidth, and a queue
so short that it loses packets.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from contrada.lab.simulation.script_maker import Links

DELAY_MS: Final = 20
LOSS_PERCENT: Final = 1

_RUN: Final = os.getpid() % 10_000
_PREFIX: Final = f"contrada{_RUN}"
_NET: Final = f"10.{128 + _RUN % 100}"
"""The addresses of brokers for their clients begin so: others may run this, too."""
_PORT: Final = 7655


def ip(*arguments: str, namespace: str = "") -> None:
    """Runs `ip`. Raises CalledProcessError."""
    inside = ["-n", namespace] if namespace else []
    subprocess.run(["ip", *inside, *arguments], check=True, capture_output=True, text=True)


def describe_os_error() -> str | None:
    """Why there can be no namespaces here; None where there can be."""
    if shutil.which("ip") is None or shutil.which("tc") is None:
        return "ip and tc of iproute2 are not there"
    name = f"{_PREFIX}-try"
    try:
        ip("netns", "add", name)
        try:
            ip("link", "add", "try0", "type", "veth", "peer", "name", "try1", namespace=name)
        finally:
            ip("netns", "del", name)
    except subprocess.CalledProcessError as error:
        return f"no namespaces and virtual devices may be made: {error.stderr.strip()}"
    return None


def _inside(name: str, device: str, *shaping: str) -> None:
    command = ["tc", "-n", name, "qdisc", "add", "dev", device, "root", *shaping]
    subprocess.run(command, check=True, capture_output=True, text=True)


def _shape(name: str, device: str) -> str:
    """Adds delay and loss to a device, as well as the kernel can. Returns the method."""
    try:
        _inside(name, device, "netem", "delay", f"{DELAY_MS}ms", "loss", f"{LOSS_PERCENT}%")
    except subprocess.CalledProcessError:  # Not every kernel has it.
        _inside(name, device, "tbf", "rate", "4mbit", "burst", "2000", "limit", "8000")
        return "tbf"
    return "netem"


class Namespaces:
    """A machine for each broker. Made by `namespaces`."""

    def __init__(self, count: int, links: Links) -> None:
        self.addresses: Sequence[str] = [
            f"contrada://{_NET}.{broker}.2:{_PORT}" for broker in range(count)
        ]
        self.shaping = ""
        self._names = [f"{_PREFIX}-{broker}" for broker in range(count)]
        self._links = links

    def make(self) -> None:
        """Makes all of it. Raises CalledProcessError."""
        for broker, name in enumerate(self._names):
            ip("netns", "add", name)
            ip("link", "set", "lo", "up", namespace=name)
            here = f"c{_RUN}.{broker}"
            ip("link", "add", here, "type", "veth", "peer", "name", "clients", "netns", name)
            ip("address", "add", f"{_NET}.{broker}.1/24", "dev", here)
            ip("link", "set", here, "up")
            ip("address", "add", f"{_NET}.{broker}.2/24", "dev", "clients", namespace=name)
            ip("link", "set", "clients", "up", namespace=name)
        for line, (a, b, _) in enumerate(self._links):
            one, other, device = self._names[a], self._names[b], f"line{line}"
            peer = "type", "veth", "peer", "name", device, "netns", other
            ip("link", "add", device, *peer, namespace=one)
            for end, name in enumerate((one, other), 1):
                ip("address", "add", f"10.232.{line}.{end}/24", "dev", device, namespace=name)
                ip("link", "set", device, "up", namespace=name)
                self.shaping = _shape(name, device)

    def remove(self) -> None:
        """Removes all namespaces; the devices end with them."""
        for name in self._names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def host(self, broker: int) -> str:
        """Where a broker listens."""
        return "0.0.0.0"

    def neighbour(self, line: int) -> str:
        """Where the first broker of a link is found by the second."""
        return f"contrada://10.232.{line}.1:{_PORT}"

    def prefix(self, broker: int) -> Sequence[str]:
        """Returns the prefix of the command of a broker."""
        return ("ip", "netns", "exec", self._names[broker])

    def cut(self, line: int) -> None:
        """A link carries nothing from now on."""
        ip("link", "set", f"line{line}", "down", namespace=self._names[self._links[line][0]])

    def mend(self, line: int) -> None:
        """A link carries again."""
        ip("link", "set", f"line{line}", "up", namespace=self._names[self._links[line][0]])


@contextmanager
def namespaces(count: int, links: Links) -> Iterator[Namespaces]:
    """Namespaces that are removed at the end."""
    make_script = Namespaces(count, links)
    try:
        make_script.make()
        yield make_script
    finally:
        make_script.remove()
