"""`System`: another messaging system for tests of bridges: a real server, and a client that shares
no code with ours.
"""

import asyncio
import json
import shutil
import socket
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from contrada.integrations.bridges.bridge_peer import AddressForm, BridgePeer
from contrada.model import Notification
from contrada.net.wire.tls import Tls

HOST = "127.0.0.1"
IN, OUT = "in", "out"
DEAD = "dead"
"""Topics of a system, made at its start: incoming and outgoing records, and dead letters."""

USER, PASSWORD = "desk", "certainly"  # pragma: allowlist secret


class Seen(NamedTuple):
    """A record as the other client sees it."""

    topic: str
    payload: bytes
    headers: Mapping[str, Any]


def free_port() -> int:
    """Returns a port that was free just now."""
    with socket.socket() as free:
        free.bind((HOST, 0))
        return int(free.getsockname()[1])


class System(ABC):
    """A server on a port of its own that can be killed and started again, with its disk."""

    kind = ""
    program = ""
    peer: type[BridgePeer]
    form: AddressForm
    has_fields = False
    is_stored = True
    """Whether it keeps records over its own death."""

    def __init__(self, folder: Path, *, has_users: bool = False) -> None:
        self.folder = folder
        self.has_users = has_users
        self.port = free_port()
        self.tls: Tls | None = None
        """The certificate of the server, which then speaks TLS."""
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def find(cls) -> str | None:
        """Returns the program of the server, or None."""
        return shutil.which(cls.program) or shutil.which(cls.program, path="/usr/sbin")

    @property
    def address(self) -> str:
        """The address for a bridge."""
        return f"{self.form.schemes[0]}://{HOST}:{self.port}"

    @property
    @abstractmethod
    def command(self) -> list[str]:
        """The command that runs the server."""

    def start(self) -> None:
        """Starts the server."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(self.command, stdout=log, stderr=log)

    async def begin(self) -> None:
        """Starts the server; returns when it answers, with its topics."""
        self.start()
        while True:
            assert self._process is not None
            assert self._process.poll() is None, (self.folder / "log").read_text()
            try:
                await self.prepare()
            except (OSError, self.failure):
                await asyncio.sleep(0.01)
            else:
                return

    refusal = ""
    """What its refusal of a password says."""

    copies = 2
    """Records of a topic after one notification was sent twice."""

    unreadable: Mapping[str, str] | None = {"Content-Type": "x" * 300}
    """Headers of a record that no notification can hold, if there is one."""

    failure: type[Exception] = OSError
    """What the other client raises while the server starts."""

    @abstractmethod
    async def prepare(self) -> None:
        """Makes the topics, unless they are there."""

    def kill(self) -> None:
        """Kills the server: no farewell, nothing more to its disk."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @abstractmethod
    async def publish(self, payload: bytes, headers: Mapping[str, str], topic: str = IN) -> None:
        """Publishes a record; returns when the server has it."""

    @abstractmethod
    async def seen(self, topic: str = OUT) -> list[Seen]:
        """Returns all records of a topic so far, since the start."""

    def payload_of(self, notification: Notification) -> bytes:
        """Returns the payload that a notification has."""
        return notification.body

    async def aclose(self) -> None:
        """Ends the other client, and the server."""
        self.kill()


class Nats(System):
    """nats-server without JetStream's acknowledgements."""

    kind, program, is_stored = "nats", "nats-server", False
    refusal = "Authorization Violation"

    def __init__(self, folder: Path, *, has_users: bool = False) -> None:
        super().__init__(folder, has_users=has_users)
        import nats

        from contrada.integrations.bridges import nats_peer

        self.form, self.failure = nats_peer.NATS_ADDRESS, nats.errors.Error
        self.peer = nats_peer.NatsPeer
        self.client: Any = None
        self._seen: dict[str, list[Seen]] = {}

    @property
    def command(self) -> list[str]:
        config = self.folder / "nats.conf"
        user = f"user: {USER}, password: {PASSWORD}, permissions: {{publish: {{deny: forbidden}}}}"
        config.write_text(
            f"listen: {HOST}:{self.port}\nmax_payload: 200000\n"
            f"jetstream {{store_dir: {self.folder}/stored}}\n"
            f"authorization {{users: [{{{user}}}]}}\n"
            + ("" if self.has_users else f"no_auth_user: {USER}\n")
            + ("" if self.tls is None else f"tls {{cert_file: '{self.tls.certificate}', ")
            + ("" if self.tls is None else f"key_file: '{self.tls.certificate}'}}\n")
        )
        return [str(self.find()), "-c", str(config)]

    async def prepare(self) -> None:
        from nats.aio.client import Client

        if self.client is not None:
            await self.client.close()
        self.client = Client()
        await self.client.connect(
            f"nats://{HOST}:{self.port}",
            user=USER,
            password=PASSWORD,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0.01,
            error_cb=self._ignore,
            connect_timeout=1,
        )
        for topic in (OUT, DEAD):
            await self._watch(topic)
        await self.client.flush()

    async def _ignore(self, error: Exception) -> None:
        """The server is starting, or was killed."""

    async def _watch(self, topic: str) -> None:
        async def see(message: Any) -> None:
            seen = Seen(message.subject, message.data, message.headers or {})
            self._seen.setdefault(topic, []).append(seen)

        await self.client.subscribe(topic, cb=see)

    async def publish(self, payload: bytes, headers: Mapping[str, str], topic: str = IN) -> None:
        await self.client.publish(topic, payload, headers=dict(headers))
        await self.client.flush()

    async def seen(self, topic: str = OUT) -> list[Seen]:
        await self.client.flush()
        return self._seen.get(topic, [])

    async def aclose(self) -> None:
        if self.client is not None:
            await self.client.close()
        await super().aclose()


class JetStream(Nats):
    """nats-server with streams."""

    kind, is_stored, copies = "jetstream", True, 1

    def __init__(self, folder: Path, *, has_users: bool = False) -> None:
        super().__init__(folder, has_users=has_users)
        from contrada.integrations.bridges import nats_peer

        self.peer = nats_peer.JetStreamPeer

    async def _watch(self, topic: str) -> None:
        if topic == OUT:
            await self.client.jetstream().add_stream(name="s", subjects=[IN, OUT, DEAD])

    async def publish(self, payload: bytes, headers: Mapping[str, str], topic: str = IN) -> None:
        await self.client.jetstream().publish(topic, payload, headers=dict(headers), timeout=10)

    async def seen(self, topic: str = OUT) -> list[Seen]:
        streams = self.client.jetstream()
        reader = await streams.subscribe(topic, ordered_consumer=True)
        about = (await streams.stream_info("s", subjects_filter=topic)).state.subjects or {}
        found: list[Seen] = []
        while len(found) < about.get(topic, 0):
            message = await reader.next_msg(timeout=10)
            found.append(Seen(message.subject, message.data, message.headers or {}))
        await reader.unsubscribe()
        return found


class RedisStreams(System):
    """redis-server with a file of all commands, written at each."""

    kind, program, has_fields = "redis", "redis-server", True
    unreadable = None
    refusal = "invalid username-password pair"

    def __init__(self, folder: Path, *, has_users: bool = False) -> None:
        super().__init__(folder, has_users=has_users)
        from redis import exceptions

        from contrada.integrations.bridges import redis_peer

        self.form, self.failure = redis_peer.REDIS_ADDRESS, exceptions.RedisError
        self.peer = redis_peer.RedisPeer
        self.client: Any = None

    @property
    def command(self) -> list[str]:
        config = self.folder / "redis.conf"
        users = f"user {USER} on ~* +@all >{PASSWORD}\nuser default off\n"
        port = f"port {self.port}\n"
        if self.tls is not None:
            files = f"tls-cert-file {self.tls.certificate}\ntls-key-file {self.tls.certificate}\n"
            port = f"port 0\ntls-port {self.port}\n{files}tls-auth-clients no\n"
            port += f"tls-ca-cert-file {self.tls.authority}\n"
        config.write_text(
            f"{port}bind {HOST}\ndir {self.folder}\nsave ''\n"
            "appendonly yes\nappendfsync always\n" + (users if self.has_users else "")
        )
        return [str(self.find()), str(config)]

    async def prepare(self) -> None:
        from redis.asyncio import Redis

        user: dict[str, Any] = {"username": USER, "password": PASSWORD} if self.has_users else {}
        await self.close_client()
        self.client = Redis(host=HOST, port=self.port, **user)
        await self.client.ping()

    async def publish(self, payload: bytes, headers: Mapping[str, str], topic: str = IN) -> None:
        try:
            fields: dict[str, Any] = {
                name: str(value) for name, value in json.loads(payload).items()
            }
        except ValueError:
            fields = {"data": payload}
        await self.client.xadd(topic, {"at": "0", **fields, **headers})

    async def seen(self, topic: str = OUT) -> list[Seen]:
        found = []
        for _, entry in await self.client.xrange(topic):
            fields = {name.decode(): value for name, value in entry.items()}
            found.append(Seen(topic, fields.get("contrada.body", b""), fields))
        return found

    def payload_of(self, notification: Notification) -> bytes:
        if not notification.body:
            value: Any = notification["data"]
            return value.encode() if isinstance(value, str) else bytes(value)
        return bytes.fromhex(json.loads(notification.body)["data"]["$bytes"])

    async def close_client(self) -> None:
        """Closes the connections of the other client."""
        if self.client is not None:
            await self.client.aclose()

    async def aclose(self) -> None:
        await self.close_client()
        await super().aclose()


SYSTEMS: tuple[type[System], ...] = (Nats, JetStream, RedisStreams)


def needs(system: type[System]) -> Any:
    """Returns the case of a system, skipped where its server is not installed."""
    reason = f"{system.program} is not installed"
    return pytest.param(
        system, id=system.kind, marks=pytest.mark.skipif(system.find() is None, reason=reason)
    )
