"""`System`: another messaging system for tests of bridges: a real server, and a client that shares
no code with ours.
"""

import asyncio
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from contrada.integrations.bridges.bridge_peer import AddressForm, BridgePeer
from contrada.model import Notification
from contrada.net.wire.tls import Tls
from tests.net.test_neighbours import free_ports

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


@asynccontextmanager
async def silent_host() -> AsyncIterator[int]:
    """Yields the port of a host that accepts a connection and never answers."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        gone.set()

    gone, silent = asyncio.Event(), await asyncio.start_server(serve, HOST, 0)
    yield silent.sockets[0].getsockname()[1]
    await gone.wait()
    silent.close()
    await silent.wait_closed()


def is_open(port: int) -> bool:
    """Whether a server accepts connections at a port."""
    with socket.socket() as tried:
        return tried.connect_ex((HOST, port)) == 0


class System(ABC):
    """A server on a port of its own that can be killed and started again, with its disk."""

    kind = ""
    program = ""
    peer: type[BridgePeer]
    form: AddressForm
    has_fields = False
    is_stored = True
    """Whether it keeps records until they are acknowledged."""
    is_on_disk = True
    """Whether it keeps records over its own death."""
    has_access_control = True
    """Whether it has users and TLS."""

    def __init__(self, folder: Path, *, has_users: bool = False) -> None:
        self.folder = folder
        self.has_users = has_users
        (self.port,) = free_ports(1)
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

    source = IN
    """The source of a bridge with the records of the topic `IN`."""

    exchange = ""
    key = ""
    """Exchange, and template of the key, of outgoing records."""

    unreadable: Mapping[str, str] | None = {"Content-Type": "x" * 300}
    """Headers of a record that no notification can hold, if there is one."""

    failure: type[Exception] = OSError
    """What the other client raises while the server starts."""

    @abstractmethod
    async def prepare(self) -> None:
        """Makes the topics, unless they are there."""

    async def bar(self, topic: str) -> None:
        """Has no place for a topic: at most systems there is none before `admit`."""
        assert topic not in (IN, OUT, DEAD)

    async def admit(self, topic: str) -> None:
        """Makes the place of a topic."""
        raise NotImplementedError(topic)

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

    kind, program, is_stored, is_on_disk = "nats", "nats-server", False, False
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
        user = (
            f"user: {USER}, password: {PASSWORD}, permissions: {{publish: {{deny: 'Forbidden.>'}}}}"
        )
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

    kind, is_stored, is_on_disk, copies = "jetstream", True, True, 1

    def __init__(self, folder: Path, *, has_users: bool = False) -> None:
        super().__init__(folder, has_users=has_users)
        from contrada.integrations.bridges import nats_peer

        self.peer = nats_peer.JetStreamPeer

    async def _watch(self, topic: str) -> None:
        if topic == OUT:
            await self.client.jetstream().add_stream(name="s", subjects=[IN, OUT, DEAD])

    async def admit(self, topic: str) -> None:
        await self.client.jetstream().update_stream(name="s", subjects=[IN, OUT, DEAD, topic])

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

    async def bar(self, topic: str) -> None:
        await self.client.set(topic, "a text")

    async def admit(self, topic: str) -> None:
        await self.client.delete(topic)

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


class RabbitMq(System):
    """rabbitmq-server with a node, a port mapper and a folder of its own."""

    kind, program = "amqp", "rabbitmq-server"
    unreadable = None
    refusal = "ACCESS_REFUSED"
    source, exchange = f"bus/{IN}", "bus"

    def __init__(self, folder: Path, *, has_users: bool = False) -> None:
        super().__init__(folder, has_users=has_users)
        import pika

        from contrada.integrations.bridges import amqp_peer

        self.form, self.failure = amqp_peer.AMQP_ADDRESS, pika.exceptions.AMQPError
        self.peer = amqp_peer.AmqpPeer
        self.client: Any = None
        self._ports = free_ports(2)
        self._mapper: subprocess.Popen[bytes] | None = None
        self._seen: dict[str, list[Seen]] = {}

    @property
    def command(self) -> list[str]:
        # The script of the system changes the user; this one runs as any.
        return ["/usr/lib/rabbitmq/bin/rabbitmq-server"]

    def start(self) -> None:
        mapper, distribution = self._ports
        listener = f"listeners.tcp.1 = {HOST}:{self.port}\n"
        if self.tls is not None:
            listener = (
                f"listeners.tcp = none\nlisteners.ssl.1 = {HOST}:{self.port}\n"
                f"ssl_options.certfile = {self.tls.certificate}\n"
                f"ssl_options.keyfile = {self.tls.certificate}\n"
            )
        user = f"default_user = {USER}\ndefault_pass = {PASSWORD}\n" if self.has_users else ""
        (self.folder / "rabbitmq.conf").write_text(
            f"{listener}{user}max_message_size = 200000\n"
            "log.console = true\nlog.console.level = error\nlog.file = false\n"
        )
        (self.folder / "plugins").write_text("[].")
        environment = {
            **os.environ,
            "HOME": str(self.folder),  # It has the cookie of the node.
            "ERL_EPMD_ADDRESS": HOST,
            "ERL_EPMD_PORT": str(mapper),
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_LOG_BASE": str(self.folder),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "mnesia"),
            "RABBITMQ_NODENAME": f"test{self.port}@localhost",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none",
        }
        self._mapper = subprocess.Popen(
            ["epmd", "-address", HOST, "-port", str(mapper)], stderr=subprocess.DEVNULL
        )
        while not is_open(mapper):  # Else the server would start a mapper that outlives it.
            assert self._mapper.poll() is None
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command, stdout=log, stderr=log, env=environment, start_new_session=True
            )

    def kill(self) -> None:
        if self.client is not None and self.client.is_open:  # Without a server it cannot close.
            self.client.close()
        for each in (self._process, self._mapper):
            if each is not None and each.poll() is None:
                if each is self._process:  # The script, and the server that it has started.
                    os.killpg(each.pid, signal.SIGKILL)
                else:
                    each.kill()
                each.wait()

    async def prepare(self) -> None:
        await asyncio.to_thread(self._prepare)

    def _prepare(self) -> None:
        import pika

        with socket.create_connection((HOST, self.port), 1):
            pass  # An OSError is quicker than one of the other client, which tries again.
        user = (USER, PASSWORD) if self.has_users else ("guest", "guest")
        self.client = pika.BlockingConnection(
            pika.ConnectionParameters(
                HOST, self.port, credentials=pika.PlainCredentials(*user), heartbeat=0
            )
        )
        self.channel = self.client.channel()
        self.channel.confirm_delivery()
        self.channel.exchange_declare(self.exchange, "topic", durable=True)
        for topic in (OUT, DEAD):
            self._declare(topic)

    def _declare(self, topic: str) -> None:
        self.channel.queue_declare(topic, durable=True)
        self.channel.queue_bind(topic, self.exchange, topic)

    async def admit(self, topic: str) -> None:
        await asyncio.to_thread(self._declare, topic)

    async def publish(self, payload: bytes, headers: Mapping[str, str], topic: str = IN) -> None:
        import pika

        about = pika.BasicProperties(headers=dict(headers), delivery_mode=2)
        await asyncio.to_thread(
            self.channel.basic_publish, self.exchange, topic, payload, about, mandatory=True
        )

    async def seen(self, topic: str = OUT) -> list[Seen]:
        await asyncio.to_thread(self._see, topic)
        return self._seen.get(topic, [])

    def _see(self, topic: str) -> None:
        while True:
            found, properties, payload = self.channel.basic_get(topic, auto_ack=True)
            if found is None:
                return
            headers = {"Content-Type": properties.content_type} | (properties.headers or {})
            seen = Seen(found.routing_key, payload, headers)
            self._seen.setdefault(topic, []).append(seen)


_CLUSTER = """
import sys
from confluent_kafka import Producer
server = Producer({"test.mock.num.brokers": 1, "log_level": 0})
for topic in sys.argv[1:]:
    about = server.list_topics(topic, timeout=10)
print(next(iter(about.brokers.values())).port, flush=True)
sys.stdin.read()
"""


class Kafka(System):
    """The cluster of librdkafka for tests, in a process of its own: it has the protocol of Kafka,
    but no disk, no users and no TLS. A client of the same library reads and writes.
    """

    kind, is_on_disk, has_access_control = "kafka", False, False
    key = "all"  # One partition, so that records have an order.

    @classmethod
    def find(cls) -> str | None:
        """Returns the interpreter, if the library is installed."""
        return sys.executable if importlib.util.find_spec("confluent_kafka") else None

    def __init__(self, folder: Path, *, has_users: bool = False) -> None:
        super().__init__(folder, has_users=has_users)
        from contrada.integrations.bridges import kafka_peer

        self.form, self.peer = kafka_peer.KAFKA_ADDRESS, kafka_peer.KafkaPeer
        self.client: Any = None

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-c", _CLUSTER, IN, OUT, DEAD]

    def start(self) -> None:
        """Starts it; the library chooses its port."""
        self._process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def pause(self) -> None:
        """Stops the process: connections stay open, and nothing answers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Lets the process go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    async def prepare(self) -> None:
        from confluent_kafka import Producer

        self.client = Producer({"bootstrap.servers": f"{HOST}:{self.port}", "log_level": 0})

    def kill(self) -> None:
        super().kill()
        if self._process is not None:
            for each in (self._process.stdin, self._process.stdout):
                assert each is not None
                each.close()

    async def publish(self, payload: bytes, headers: Mapping[str, str], topic: str = IN) -> None:
        self.client.produce(topic, payload, self.key, headers=dict(headers))
        assert await asyncio.to_thread(self.client.flush, 10) == 0

    async def seen(self, topic: str = OUT) -> list[Seen]:
        return await asyncio.to_thread(self._see, topic)

    def _see(self, topic: str) -> list[Seen]:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(
            {"bootstrap.servers": f"{HOST}:{self.port}", "group.id": "seen", "log_level": 0}
        )
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        places = [TopicPartition(topic, each, 0) for each in partitions]
        ends = [consumer.get_watermark_offsets(each, timeout=10)[1] for each in places]
        consumer.assign(places)
        found: list[Seen] = []
        while len(found) < sum(ends):
            message = consumer.poll(10)
            assert message is not None
            assert message.error() is None, message.error()
            about: Any = message.headers()
            headers = {name: value.decode() for name, value in about or ()}
            payload = message.value()
            assert isinstance(payload, bytes)
            found.append(Seen(topic, payload, headers))
        consumer.close()
        return found


SYSTEMS: tuple[type[System], ...] = (Nats, JetStream, RedisStreams, RabbitMq, Kafka)


def needs(system: type[System]) -> Any:
    """Returns the case of a system, skipped where its server is not installed."""
    reason = f"{system.program} is not installed"
    return pytest.param(
        system, id=system.kind, marks=pytest.mark.skipif(system.find() is None, reason=reason)
    )
