"""Messaging systems that carry the same load: one publisher, one server, one subscriber.

See `bench.wire_load` for the load. All but Contrada carry JSON, encoded and decoded by orjson, and
select by a subject or topic only. Each client library is used in its fastest way: without an
answer to each publication, in pipelines or batches where it has them, with the parser in C of
redis, and clients of asyncio on uvloop. A system without an installed server or client library is
left out.

`python -m bench.wire_peers ROLE NAME PORT COUNT COUNT PROCESS [PIPE ...]` is a client of a run.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, Final

from bench.wire_load import (
    OUTSTANDING,
    TOPIC,
    Item,
    Publish,
    Read,
    System,
    Taken,
    Window,
    item,
    publish_or_subscribe,
    run_client,
    run_client_alone,
    running,
)

PER_CONNECTION: Final = 10_000
TOGETHER: Final = 100
FILTER: Final = 'symbol = "S7" and price < 1000'


class Contrada(System):
    """Contrada, with a content filter, and perhaps many others that do not match."""

    def __init__(self, others: int = 0) -> None:
        self.name = f"contrada among {others:,}" if others else "contrada"
        self._others = others

    def command(self, port: int, folder: str) -> list[str]:
        return [sys.executable, "-m", "contrada", "serve", "--port", str(port)]

    def publish(self, port: int, total: int, window: Window) -> None:
        from contrada import connect

        async def run() -> None:
            async with connect(_address(port)) as service:
                if window.chunk == 1:
                    for number in range(total):
                        await window.ready(number)
                        await service.publish(item(number))
                    return
                async with asyncio.TaskGroup() as tasks:
                    for begin in range(0, total, window.chunk):
                        await window.ready(begin)
                        items = [item(number) for number in range(begin, begin + window.chunk)]
                        tasks.create_task(self._publish_chunk(service, items))
                        await asyncio.sleep(0)

        run_client(run())

    def _publish_chunk(self, service: Any, items: list[Item]) -> Coroutine[Any, Any, object]:
        return service.publish_batch(items)  # type: ignore[no-any-return]

    def subscribe(self, port: int, taken: Taken, ready: Callable[[], None]) -> None:
        from contrada import connect

        async def run() -> None:
            async with AsyncExitStack() as stack:
                services = [
                    await stack.enter_async_context(connect(_address(port)))
                    for _ in range(1 + self._others // PER_CONNECTION)
                ]
                for number in range(self._others):
                    service = services[number // PER_CONNECTION]
                    await service.subscribe(f'symbol = "N{number}"').open()
                events = await stack.enter_async_context(services[-1].subscribe(FILTER))
                done = asyncio.Event()
                taken.done = done.set
                ready()
                await self._read(events, taken, done)

        run_client(run())

    async def _read(self, events: Any, taken: Taken, done: asyncio.Event) -> None:
        """Reads with a handler."""
        task = asyncio.create_task(events.handle(taken.take))
        await done.wait()
        task.cancel()

    def subscribe_many(self, port: int, count: int, ready: Callable[[], None]) -> None:
        from contrada import connect

        async def run() -> None:
            async with connect(_address(port)) as service:
                ready()
                held = [service.subscribe(f'symbol = "N{number}"') for number in range(count)]
                for begin in range(0, count, TOGETHER):
                    await asyncio.gather(*(each.open() for each in held[begin : begin + TOGETHER]))

        run_client(run())

    def durable_command(self, port: int, folder: str) -> list[str]:
        return [*self.command(port, folder), "--store", f"{folder}/store.db"]

    @asynccontextmanager
    async def confirmed(self, port: int) -> AsyncIterator[Publish]:
        from contrada import connect

        async with connect(_address(port)) as service:
            await (await service.subscribe(FILTER, durable="all")).aclose()
            yield lambda found: service.publish(found, delivery="certified")

    @asynccontextmanager
    async def stored(self, port: int, count: int) -> AsyncIterator[Read]:
        from contrada import connect

        async with connect(_address(port)) as service:
            await (await service.subscribe(FILTER, durable="all")).aclose()
            for begin in range(0, count, TOGETHER):
                items = [item(number) for number in range(begin, begin + TOGETHER)]
                await service.publish_batch(items, delivery="certified")

            async def read() -> None:
                async with service.subscribe(FILTER, durable="all") as events:
                    number = 0
                    async for each in events:
                        assert each["number"] == number
                        number += 1
                        if number == count:
                            break

            yield read


class ContradaLoop(Contrada):
    """Contrada, read by `async for`."""

    def __init__(self) -> None:
        super().__init__()
        self.name = "contrada, async for"

    async def _read(self, events: Any, taken: Taken, done: asyncio.Event) -> None:
        async for each in events:
            taken.take(each)
            if done.is_set():
                break


class ContradaGather(ContradaLoop):
    """Contrada, with single publications in `gather`."""

    def __init__(self) -> None:
        super().__init__()
        self.name = "contrada, gather"

    async def _publish_chunk(self, service: Any, items: list[Item]) -> None:
        await asyncio.gather(*map(service.publish, items))


class ContradaLine(Contrada):
    """Contrada, through two brokers: the publisher is at one, the subscriber at the other."""

    def __init__(self) -> None:
        super().__init__()
        self.name = "contrada, two brokers"

    @contextmanager
    def server(self, *, durable: bool = False) -> Iterator[tuple[int, int, int]]:
        """Runs the brokers; the process is the first one's."""
        north = [*self.command(0, "")[:-2], "--name", "north", "--port"]
        with running(lambda port: [*north, str(port)]) as (first, process):
            south = [*north[:-2], "south", "--neighbour", _address(first), "--port"]
            with running(lambda port: [*south, str(port)]) as (second, _):
                yield first, second, process


class Nats(System):
    """nats-server and nats-py; confirmations are of JetStream."""

    name = "nats"
    modules = ("nats", "orjson")
    program = "nats-server"

    def command(self, port: int, folder: str) -> list[str]:
        return [self.program, "--addr", "127.0.0.1", "--port", str(port)]

    def publish(self, port: int, total: int, window: Window) -> None:
        import nats
        from orjson import dumps

        async def run() -> None:
            client = await nats.connect(f"nats://127.0.0.1:{port}")
            for begin in range(0, total, window.chunk):
                await window.ready(begin)
                for number in range(begin, begin + window.chunk):
                    await client.publish(TOPIC, dumps(item(number)))
            await client.flush()
            await window.ready(total)
            await client.close()

        run_client(run())

    def subscribe(self, port: int, taken: Taken, ready: Callable[[], None]) -> None:
        import nats
        from orjson import loads

        async def run() -> None:
            client = await nats.connect(f"nats://127.0.0.1:{port}")
            done = asyncio.Event()
            taken.done = done.set

            async def take(message: Any) -> None:
                taken.take(loads(message.data))

            await client.subscribe(TOPIC, cb=take, pending_msgs_limit=-1, pending_bytes_limit=-1)
            await client.flush()
            ready()
            await done.wait()
            await client.close()

        run_client(run())

    def subscribe_many(self, port: int, count: int, ready: Callable[[], None]) -> None:
        import nats

        async def take(_: Any) -> None: ...

        async def run() -> None:
            client = await nats.connect(f"nats://127.0.0.1:{port}")
            ready()
            for number in range(count):
                await client.subscribe(f"N{number}", cb=take)
            await client.flush()
            await client.close()

        run_client(run())

    def durable_command(self, port: int, folder: str) -> list[str]:
        with open(f"{folder}/it.conf", "w", encoding="utf-8") as file:
            file.write(f'jetstream {{ store_dir: "{folder}", sync_interval: always }}\n')
        return [*self.command(port, folder), "--config", file.name]

    @asynccontextmanager
    async def confirmed(self, port: int) -> AsyncIterator[Publish]:
        import nats
        from orjson import dumps

        client = await nats.connect(f"nats://127.0.0.1:{port}")
        stream = client.jetstream()
        await stream.add_stream(name=TOPIC, subjects=[TOPIC])
        yield lambda found: stream.publish(TOPIC, dumps(found))
        await client.close()

    @asynccontextmanager
    async def stored(self, port: int, count: int) -> AsyncIterator[Read]:
        import nats
        from nats.js.api import AckPolicy, ConsumerConfig
        from orjson import dumps, loads

        client = await nats.connect(f"nats://127.0.0.1:{port}")
        stream = client.jetstream()
        await stream.add_stream(name=TOPIC, subjects=[TOPIC])
        for begin in range(0, count, TOGETHER):
            numbers = range(begin, begin + TOGETHER)
            await asyncio.gather(*(stream.publish(TOPIC, dumps(item(each))) for each in numbers))

        async def read() -> None:
            # The acknowledgement of the last of a fetch holds for all before it.
            config = ConsumerConfig(ack_policy=AckPolicy.ALL)
            events = await stream.pull_subscribe(TOPIC, durable="all", config=config)
            number = 0
            while number < count:
                for message in await events.fetch(TOGETHER):
                    assert loads(message.data)["number"] == number
                    number += 1
                await message.ack_sync()

        yield read
        await client.close()


class Mosquitto(System):
    """mosquitto and gmqtt, which takes half the processor time of paho."""

    name = "mosquitto"
    modules = ("gmqtt", "orjson")
    program = "mosquitto"

    def command(self, port: int, folder: str) -> list[str]:
        with open(f"{folder}/it.conf", "w", encoding="utf-8") as file:
            file.write(
                f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\n"
                "set_tcp_nodelay true\n"
            )
        return [self.program, "-c", file.name]

    @asynccontextmanager
    async def _client(self, port: int, on_subscribe: Callable[..., object]) -> AsyncIterator[Any]:
        from gmqtt import Client

        client = Client(None)
        client.on_subscribe = on_subscribe
        await client.connect("127.0.0.1", port)
        yield client
        await client.disconnect()

    def publish(self, port: int, total: int, window: Window) -> None:
        from orjson import dumps

        async def run() -> None:
            async with self._client(port, print) as client:
                for begin in range(0, total, window.chunk):
                    await window.ready(begin)
                    for number in range(begin, begin + window.chunk):
                        client.publish(TOPIC, dumps(item(number)))
                    await asyncio.sleep(0)
                await window.ready(total)

        run_client(run())

    def subscribe(self, port: int, taken: Taken, ready: Callable[[], None]) -> None:
        from orjson import loads

        def take(_client: Any, _topic: str, payload: bytes, _qos: int, _properties: Any) -> int:
            taken.take(loads(payload))
            return 0

        async def run() -> None:
            done = asyncio.Event()
            taken.done = done.set
            async with self._client(port, lambda *_: ready()) as client:
                client.on_message = take
                client.subscribe(TOPIC)
                await done.wait()

        run_client(run())

    def subscribe_many(self, port: int, count: int, ready: Callable[[], None]) -> None:
        from gmqtt import Subscription

        async def run() -> None:
            answers: asyncio.Queue[None] = asyncio.Queue()
            async with self._client(port, lambda *_: answers.put_nowait(None)) as client:
                ready()
                for begin in range(0, count, TOGETHER):
                    numbers = range(begin, begin + TOGETHER)
                    client.subscribe([Subscription(f"N{number}") for number in numbers])
                    await answers.get()

        run_client(run())


class Redis(System):
    """redis-server and redis-py with hiredis, in pipelines; confirmations are of a stream."""

    name = "redis"
    modules = ("redis", "hiredis", "orjson")
    program = "redis-server"

    def command(self, port: int, folder: str) -> list[str]:
        return [self.program, "--port", str(port), "--save", "", "--dir", folder]

    def publish(self, port: int, total: int, window: Window) -> None:
        import redis
        from orjson import dumps

        client = redis.Redis(port=port)
        for begin in range(0, total, window.chunk):
            window.wait(begin)
            pipeline = client.pipeline(transaction=False)
            for number in range(begin, begin + window.chunk):
                pipeline.publish(TOPIC, dumps(item(number)))
            pipeline.execute()

    def subscribe(self, port: int, taken: Taken, ready: Callable[[], None]) -> None:
        import redis
        from orjson import loads

        client: Any = redis.Redis(port=port)
        messages = client.pubsub(ignore_subscribe_messages=False)
        messages.subscribe(TOPIC)
        ended: list[bool] = []
        taken.done = lambda: ended.append(True)
        for message in messages.listen():
            if message["type"] == "subscribe":
                ready()
                continue
            taken.take(loads(message["data"]))
            if ended:
                break

    def subscribe_many(self, port: int, count: int, ready: Callable[[], None]) -> None:
        import redis

        client: Any = redis.Redis(port=port)
        messages = client.pubsub()
        messages.subscribe(TOPIC)
        messages.get_message(timeout=None)
        ready()
        for begin in range(0, count, TOGETHER):
            messages.subscribe(*(f"N{number}" for number in range(begin, begin + TOGETHER)))
        for answers, _ in enumerate(messages.listen(), start=1):
            if answers == count:
                break

    def durable_command(self, port: int, folder: str) -> list[str]:
        return [*self.command(port, folder), "--appendonly", "yes", "--appendfsync", "always"]

    @asynccontextmanager
    async def confirmed(self, port: int) -> AsyncIterator[Publish]:
        from orjson import dumps
        from redis import asyncio as redis

        async with redis.Redis(port=port) as client:
            yield lambda found: client.xadd(TOPIC, {"it": dumps(found)})

    @asynccontextmanager
    async def stored(self, port: int, count: int) -> AsyncIterator[Read]:
        from orjson import dumps, loads
        from redis import asyncio as redis

        client: Any = redis.Redis(port=port)
        async with client:
            for begin in range(0, count, TOGETHER):
                pipeline = client.pipeline(transaction=False)
                for number in range(begin, begin + TOGETHER):
                    pipeline.xadd(TOPIC, {"it": dumps(item(number))})
                await pipeline.execute()
            await client.xgroup_create(TOPIC, "all", "0")

            async def read() -> None:
                number = 0
                while number < count:
                    found = await client.xreadgroup("all", "one", {TOPIC: ">"}, count=TOGETHER)
                    ((_, entries),) = found
                    for _, fields in entries:
                        assert loads(fields[b"it"])["number"] == number
                        number += 1
                    await client.xack(TOPIC, "all", *(place for place, _ in entries))

            yield read


class Zenoh(System):
    """A router of zenoh, and its clients, which send in batches by themselves."""

    name = "zenoh"
    modules = ("zenoh", "orjson")

    def command(self, port: int, folder: str) -> list[str]:
        program = (
            "import time, zenoh; config = zenoh.Config();"
            "config.insert_json5('mode', '\"router\"');"
            f"config.insert_json5('listen/endpoints', '[\"tcp/127.0.0.1:{port}\"]');"
            "config.insert_json5('scouting/multicast/enabled', 'false');"
            "session = zenoh.open(config); time.sleep(1e6)"
        )
        return [sys.executable, "-c", program]

    def _session(self, port: int) -> Any:
        import zenoh

        config = zenoh.Config()
        config.insert_json5("mode", '"client"')
        config.insert_json5("connect/endpoints", f'["tcp/127.0.0.1:{port}"]')
        config.insert_json5("scouting/multicast/enabled", "false")
        return zenoh.open(config)

    def publish(self, port: int, total: int, window: Window) -> None:
        import zenoh
        from orjson import dumps

        session = self._session(port)
        publisher = session.declare_publisher(
            TOPIC, congestion_control=zenoh.CongestionControl.BLOCK
        )
        for begin in range(0, total, window.chunk):
            window.wait(begin)
            for number in range(begin, begin + window.chunk):
                publisher.put(dumps(item(number)))
        window.wait(total)
        session.close()

    def subscribe(self, port: int, taken: Taken, ready: Callable[[], None]) -> None:
        import zenoh
        from orjson import loads

        session = self._session(port)
        ended: list[bool] = []
        taken.done = lambda: ended.append(True)
        # A channel costs the subscriber less than a callback from a thread of zenoh.
        samples = session.declare_subscriber(TOPIC, zenoh.handlers.FifoChannel(OUTSTANDING))
        ready()
        for sample in samples:
            taken.take(loads(sample.payload.to_bytes()))
            if ended:
                break
        session.close()


PEERS: Final = (Nats(), Mosquitto(), Redis(), Zenoh())
SYSTEMS: Final[dict[str, System]] = {
    each.name: each
    for each in (
        Contrada(),
        ContradaLoop(),
        ContradaGather(),
        ContradaLine(),
        Contrada(1_000),
        Contrada(100_000),
        *PEERS,
    )
}


def _address(port: int) -> str:
    return f"contrada://127.0.0.1:{port}"


def main(role: str, name: str, port: str, *words: str) -> None:
    """Runs one client of a run."""
    counts, pipes = list(map(int, words[:3])), list(map(int, words[3:]))
    if pipes:
        publish_or_subscribe(SYSTEMS[name], role, counts, int(port), pipes)
    else:
        run_client_alone(SYSTEMS[name], role, counts, int(port))


if __name__ == "__main__":
    main(*sys.argv[1:])
