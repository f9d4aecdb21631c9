"""`Mosquitto`: a real MQTT 5 broker for tests; and `Other`, a client that shares no code with
ours.
"""

import asyncio
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import Client, MQTTMessage, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from contrada.integrations.bridges.mqtt_peer import MQTT_ADDRESS

HOST = "127.0.0.1"
PROGRAM = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
needs_mosquitto = pytest.mark.skipif(PROGRAM is None, reason="mosquitto is not installed")


class Mosquitto:
    """A broker on a port of its own that can be stopped and restarted."""

    def __init__(self, folder: Path, *lines: str) -> None:
        with socket.socket() as free:
            free.bind((HOST, 0))
            self.port = free.getsockname()[1]
        kept = f"persistence true\npersistence_location {folder}/\nautosave_interval 1\n"
        anonymous = (
            "" if any("allow_anonymous" in each for each in lines) else "allow_anonymous true\n"
        )
        self.folder = folder
        self._file = folder / "mosquitto.conf"
        self._log = folder / "mosquitto.log"
        logged = f"log_dest file {self._log}\nlog_type notice\n"
        said = "\n".join(lines)
        self._file.write_text(
            f"listener {self.port} {HOST}\nuser root\n{kept}{logged}{anonymous}{said}\n"
        )
        self._process: subprocess.Popen[bytes] | None = None
        self.begin()

    @property
    def address(self) -> Any:
        """The address for a session."""
        return MQTT_ADDRESS.parse(f"mqtt://{HOST}:{self.port}")

    def reload(self) -> None:
        """Has it read its files of permissions again."""
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)

    def begin(self) -> None:
        """Starts it; returns when it accepts connections."""
        self._process = subprocess.Popen(
            [str(PROGRAM), "-c", str(self._file)], stderr=subprocess.DEVNULL
        )
        while self._process.poll() is None:
            with socket.socket() as tried:
                if tried.connect_ex((HOST, self.port)) == 0:
                    return
        raise AssertionError("mosquitto has ended")

    def farewells(self, name: str) -> int:
        """Returns the number of disconnects of a client. Before that, its acknowledgements may be
        unread.

        A client of the same name that connects earlier makes the broker discard them.
        """
        return len(
            re.findall(rf"Client {re.escape(name)}\b.* disconnected", self._log.read_text("utf-8"))
        )

    def end(self) -> None:
        """Stops it in order: it keeps its sessions."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()


@contextmanager
def mosquitto(folder: Path, *lines: str) -> Iterator[Mosquitto]:
    """A broker that ends with the test."""
    broker = Mosquitto(folder, *lines)
    try:
        yield broker
    finally:
        broker.end()


class Other:
    """Another MQTT client: publishes, and records received messages."""

    def __init__(self, broker: Mosquitto, *filters: str) -> None:
        self.got: list[MQTTMessage] = []
        self._client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTv5)
        self._client.on_message = lambda _, __, message: self.got.append(message)
        self._client.connect(HOST, broker.port)
        self._client.loop_start()
        self._is_ready = False
        self._client.on_subscribe = self._ready
        if filters:
            self._client.subscribe([(each, 1) for each in filters])
            while not self._is_ready:
                pass

    def _ready(self, *_: Any) -> None:
        self._is_ready = True

    async def publish(
        self,
        topic: str,
        payload: str | bytes = b"",
        *,
        qos: int = 1,
        retain: bool = False,
        **said: Any,
    ) -> None:
        """Publishes; returns when the broker has the message."""
        about = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        for name, value in said.items():
            setattr(about, name, value)
        info = self._client.publish(topic, payload, qos, retain, about)
        await asyncio.to_thread(info.wait_for_publish, 10)
        assert info.is_published()

    def close(self) -> None:
        """Disconnects."""
        self._client.disconnect()
        self._client.loop_stop()
