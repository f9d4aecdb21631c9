"""The TypeScript client in Node and in Chromium, at broker processes."""

import asyncio
import json
import re
import subprocess
import tomllib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx
import pytest
from websockets import Subprotocol
from websockets.asyncio.server import ServerConnection, serve

from contrada.model import Notification
from contrada.net.wire.tokens import new_token
from tests.asynchronous import on_loop
from tests.browsers import CHROMIUM, needs_browser
from tests.clients.runtimes import (
    NODE,
    REPOSITORY,
    RUNTIMES,
    SOURCE,
    Runtime,
    build,
    pages,
    run_tool,
    runtime_of,
)
from tests.conformance_vectors import FILE, NOTIFICATIONS, values_of
from tests.net.processes import serving
from tests.net.test_neighbours import free_ports

VECTORS_RUNNER = Path(__file__).with_name("vectors.mjs")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled client."""
    return build(tmp_path_factory.mktemp("typescript"))


@pytest.fixture(scope="module")
def origin(package: Path) -> Iterator[str]:
    with pages(package) as found:
        yield found


@pytest.fixture(params=RUNTIMES)
def name(request: pytest.FixtureRequest) -> str:
    if request.param == "chromium" and CHROMIUM is None:
        pytest.skip("needs Chromium: install the package chromium")
    return str(request.param)


class Place:
    """The settings of a broker at one port, so that it can be killed and started again."""

    def __init__(self, folder: Path, origin: str) -> None:
        self.folder = folder
        port, http = free_ports(2)
        self.address = f"http://127.0.0.1:{http}"
        self.token, record = new_token("desk")
        (folder / "users.toml").write_text(
            f'[users.desk]\ntoken = "{record}"\npublish = true\nsubscribe = true\n'
            'durable = ["orders"]\n'
            '[users.anonymous]\npublish = "public = true"\n',
            "utf-8",
        )
        (folder / "broker.toml").write_text(
            f'port = {port}\nstore = "events.db"\nusers = "users.toml"\n'
            f'http = {{ listen = "{http}", origins = ["{origin}"] }}\n',
            "utf-8",
        )

    @contextmanager
    def broker(self) -> "Iterator[subprocess.Popen[str]]":
        """Runs the broker until the end of the context, which kills it."""
        with serving("--config", "broker.toml", folder=self.folder) as (process, first):
            assert process.stdout is not None
            assert first.startswith("contrada://"), process.stderr
            assert process.stdout.readline().strip() == self.address
            yield process


@pytest.fixture
def place(tmp_path: Path, origin: str) -> Place:
    return Place(tmp_path, origin)


CONNECT = """async ({ url, token }) => {
  globalThis.states = [];
  globalThis.client = await contrada.connect(url, {
    ...runtime, token, backoff: { firstMs: 20, mostMs: 200 },
    onState: (state, error) => states.push(state),
  });
}"""


@asynccontextmanager
async def connected(name: str, package: Path, origin: str, place: Place) -> AsyncIterator[Runtime]:
    async with runtime_of(name, package, origin) as runtime:
        await runtime.run(CONNECT, {"url": place.address, "token": place.token})
        yield runtime
        await runtime.run("() => client.close()")
        assert (await runtime.run("() => states"))[-1] == "closed"


def test_values_bodies_and_matches(name: str, package: Path, origin: str, place: Place) -> None:
    """A client would round integers, or lose bytes, times or the body."""

    @on_loop
    async def go() -> None:
        async with connected(name, package, origin, place) as runtime:
            found = await runtime.run("""async () => {
              const all = await client.subscribe("n any");
              const pairs = await client.subscribePattern("n = 1 -> n = 2");
              const time = contrada.Time.of("2026-11-20T09:30:00.000123Z");
              await client.publish(
                { n: 2n ** 53n + 1n, b: new Uint8Array([0, 255]), time, x: NaN, several: [1, 2] },
                { body: "whole", contentType: "text/plain", priority: 7, ttlS: 60 });
              await client.publishAll([[{ n: 1 }], [{ n: 2 }]]);
              const { attributes, body, contentType, envelope } = await all.next();
              const match = await pairs.next();
              await pairs.close();
              const { n, b, x, several } = attributes;
              return [
                typeof n, String(n), [...b], String(attributes.time), Number.isNaN(x), several,
                new TextDecoder().decode(body), contentType, envelope.priority, envelope.ttlUs,
                envelope.publisher.startsWith("desk/"), match.map(each => each.attributes.n),
                (await all.next()).attributes,
              ];
            }""")
            assert found == [
                *("bigint", "9007199254740993", [0, 255], "2026-11-20T09:30:00.000123Z", True),
                *([1, 2], "whole", "text/plain", 7, 60_000_000, True, [1, 2], {"n": 1}),
            ]

    with place.broker():
        go()


def test_errors_have_the_offending_value(
    name: str, package: Path, origin: str, place: Place
) -> None:
    """A wrong filter, token or value would look like a broken connection, or be tried again."""

    @on_loop
    async def go() -> None:
        async with connected(name, package, origin, place) as runtime:
            found = await runtime.run(
                """async ({ url, token }) => {
                  const failed = async call => {
                    try { await call() } catch (error) { return [error.name, error.message] }
                  };
                  const connect = (to, options) => contrada.connect(to, { ...runtime, ...options });
                  return [
                    await failed(() => connect(url, { token: "desk.wrong" })),
                    await failed(() => connect(url + "/?access_token=secret", {})),
                    await failed(() => connect("desk", {})),
                    await failed(() => client.subscribe("price >")),
                    await failed(() => client.subscribe("price > 1", { queueMax: 0 })),
                    await failed(() => client.subscribe(undefined, { durable: "others" })),
                    await failed(() => client.publish({ n: 2n ** 63n })),
                    await failed(() => client.publish({ when: { nested: 1 } })),
                    await failed(() => client.publish({ text: "\\ud800" })),
                    await failed(() => client.publish([1])),
                    await failed(() => client.publish({ "": 1 })),
                    await failed(() => client.subscribePattern("n = 1")
                      .then(async matches => {
                        await client.publish({ n: 1 });
                        return matches.next();
                      })),
                  ];
                }""",
                {"url": place.address, "token": place.token},
            )
        kinds = [kind for kind, _ in found]
        assert kinds[:6] == [
            *("RefusedError", "InvalidValueError", "InvalidValueError", "RefusedError"),
            *("InvalidValueError", "RefusedError"),
        ]
        texts = [text for _, text in found]
        assert "401" in texts[0]
        assert "secret" not in texts[1]
        assert texts[2] == '"desk": expected an address as http://HOST:PORT'
        assert texts[3].startswith('"price >": line 1, column 8: ')
        assert texts[4].startswith("0: queueMax: expected a whole number")
        assert texts[5].startswith('"others": ')
        assert "(403)" in texts[5]
        assert texts[6] == "9223372036854775808: attribute n: expected an integer of 64 bits"
        assert "attribute when: found [object Object]" in texts[7]
        assert "surrogate" in texts[8]
        assert texts[9] == "1: expected an object of attributes"
        assert kinds[10] == "RefusedError"
        assert texts[11] == '"n = 1": this is no pattern: use subscribe'

    with place.broker():
        go()


def test_a_slow_reader_loses_what_it_has_chosen(
    name: str, package: Path, origin: str, place: Place
) -> None:
    """A page would hold all notifications that it does not read, until its memory is full."""

    @on_loop
    async def go() -> None:
        async with connected(name, package, origin, place) as runtime:
            found = await runtime.run("""async () => {
              const losses = [], onLoss = loss => losses.push(loss);
              const subscribe = options => client.subscribe("n any", { queueMax: 3, ...options });
              const oldest = await subscribe({ onLoss });
              const newest = await subscribe({ whenFull: "drop-newest" });
              const ended = await subscribe({ whenFull: "disconnect" });
              const last = await client.subscribe("n = 9");
              await client.publishAll(Array.from({ length: 10 }, (_, n) => [{ n }]));
              await last.next();
              const read = async from => {
                const found = [];
                try {
                  for (let item = await from.next(); item; item = await from.next()) {
                    found.push(item.attributes.n);
                    if (found.length === 3 && from !== ended) break;
                  }
                } catch (error) { found.push(error.message) }
                return found;
              };
              const found = [await read(oldest), await read(newest), await read(ended)];
              return [...found, oldest.losses, losses.length];
            }""")
            assert found[:2] == [[7, 8, 9], [0, 1, 2]]
            assert found[2][:3] == [0, 1, 2]
            assert found[2][3].startswith("queueMax = 3: the reader is too slow")
            assert found[3:] == [{"client queue full": 7}, 7]

    with place.broker():
        go()


def test_records_are_settled_within_the_prefetch(
    name: str, package: Path, origin: str, place: Place
) -> None:
    """A record would be lost with an exception, or a slow worker would get the whole log."""

    @on_loop
    async def go() -> None:
        async with connected(name, package, origin, place) as runtime:
            found = await runtime.run("""async () => {
              const options = { durable: "orders", prefetch: 2 }, delivery = "certified";
              const orders = await client.subscribe("order any", options);
              await client.publishAll([0, 1, 2, 3].map(order => [{ order }, { delivery }]));
              const seen = [], errors = [];
              const first = await orders.next(), second = await orders.next();
              // A third record would be before the answer.
              await client.publishAll([]);
              await first.extend();
              const odd = await first.nack({ delayS: Infinity }).catch(error => error.message);
              const settled = [await first.nack({ delayS: 0 }), await second.ack()];
              const failed = new Set();
              const done = orders.handle(({ notification, attempt }) => {
                const { order } = notification.attributes;
                seen.push([order, attempt]);
                if (order === 2 && !failed.has(order)) {
                  failed.add(order);
                  throw new Error("no room");
                }
                if (order === 2) setTimeout(() => orders.close());
              }, { onError: (error, record) => errors.push([record.position, error.message]) });
              await done;
              return [odd, settled, seen, errors];
            }""")
            odd, settled, seen, errors = found
            assert odd == "Infinity: delayS: expected seconds"
            assert settled == [True, True]
            assert sorted(seen) == [[0, 2], [2, 1], [2, 2], [3, 1]]
            assert errors == [[3, "no room"]]

    with place.broker():
        go()


def test_a_killed_broker(name: str, package: Path, origin: str, place: Place) -> None:
    """A client would miss records, miss that it has missed notifications, or stay away."""

    @on_loop
    async def go() -> None:
        async with runtime_of(name, package, origin) as runtime:
            with place.broker() as process:
                await runtime.run(CONNECT, {"url": place.address, "token": place.token})
                first = await runtime.run("""async () => {
                  globalThis.plain = await client.subscribe("order any");
                  globalThis.orders = await client.subscribe("order any", { durable: "orders" });
                  const delivery = "certified";
                  await client.publishAll([0, 1, 2].map(order => [{ order }, { delivery }]));
                  // The third one is in the queue when the connection is lost.
                  globalThis.held = [await orders.next(), await orders.next()];
                  for (let n = 0; n < 3; n++) await plain.next();
                  return [await held[0].ack(), held.map(each => each.position)];
                }""")
                assert first == [True, [1, 2]]
                process.kill()
                process.wait()
            late = await runtime.run("""async () => {
              while (states.at(-1) !== "lost") await new Promise(resolve => setTimeout(resolve, 5));
              globalThis.waiting = client.publish({ order: 3 }, { delivery: "certified" });
              return held[1].ack();
            }""")
            assert late is False
            with place.broker():
                found = await runtime.run("""async () => {
                  await waiting;
                  const records = [];
                  for await (const record of orders) {
                    records.push([record.position, record.notification.attributes.order]);
                    await record.ack();
                    if (records.length === 3) break;
                  }
                  const after = (await plain.next()).attributes.order;
                  await client.close();
                  return [records, after, plain.losses, states];
                }""")
            assert found == [
                [[2, 1], [3, 2], [4, 3]],
                3,
                {"reconnect": 1},
                ["connected", "lost", "connected", "closed"],
            ]

    go()


def test_a_token_that_is_refused_later(name: str, package: Path, origin: str, place: Place) -> None:
    """A client whose user was removed would try to connect for ever, or seem to wait for events."""

    @on_loop
    async def go() -> None:
        async with runtime_of(name, package, origin) as runtime:
            with place.broker() as process:
                await runtime.run(CONNECT, {"url": place.address, "token": place.token})
                await runtime.run(
                    "async () => { globalThis.all = await client.subscribe('a any') }"
                )
                process.kill()
                process.wait()
            users = place.folder / "users.toml"
            token = f'token = "{new_token("desk")[1]}"'
            users.write_text(
                re.sub("token = .*", lambda _: token, users.read_text("utf-8")), "utf-8"
            )
            with place.broker():
                found = await runtime.run("""async () => {
                  const failed = async call => call().then(() => "", error => error.message);
                  const found = [await failed(() => all.next())];
                  found.push(await failed(() => client.publish({ a: 1 })));
                  return [...found, states];
                }""")
            assert "401" in found[0]
            assert found[1] == found[0]
            assert found[2] == ["connected", "lost", "closed"]

    go()


def test_the_example_of_the_page(package: Path, place: Place) -> None:
    """A newcomer could not compile or run the first program of the page."""
    page = (REPOSITORY / "docs" / "typescript.md").read_text("utf-8")
    (example,) = re.findall(r"```ts\n(.*?)```", page, re.DOTALL)
    folder = package.parents[1]
    example = example.replace("http://127.0.0.1:8080", place.address)
    (folder / "example.ts").write_text(example, "utf-8")
    (folder / "tsconfig.json").write_text(
        json.dumps(
            {
                "compilerOptions": {
                    **json.loads((SOURCE / "tsconfig.json").read_text("utf-8"))["compilerOptions"],
                    "rootDir": ".",
                    "outDir": ".",
                    "types": ["ws"],
                    "declaration": False,
                },
                "files": ["example.ts"],
            }
        ),
        "utf-8",
    )
    compiled = run_tool(folder, folder / "node_modules" / ".bin" / "tsc", "-p", folder)
    assert compiled.returncode == 0, compiled.stdout
    with place.broker():
        done = subprocess.run(
            [NODE or "node", "example.js"],
            cwd=folder,
            env={"TOKEN": place.token},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert (done.returncode, done.stderr) == (0, "")
    shown = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    assert done.stdout == shown[0]


def test_a_runtime_without_websocket_is_named(package: Path) -> None:
    """A user of Node 20 would read that something is undefined."""
    code = f"""import("{package.as_posix()}/dist/index.js")
      .then(({{ connect }}) => connect("http://127.0.0.1:1"))
      .catch(error => console.log(error.message))"""
    options = ["--no-experimental-websocket", "-e", code]
    done = subprocess.run(
        [NODE or "node", *options], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == (
        '"WebSocket": this runtime has none: pass that of the package ws, or use Node 22 or later\n'
    )


def test_a_silent_broker_counts_as_lost(package: Path) -> None:
    """A client behind a dead network would wait for ever, and report no loss."""

    @on_loop
    async def go() -> None:
        asked = asyncio.Queue[str]()

        async def answer_once(socket: ServerConnection) -> None:
            async for message in socket:
                asked.put_nowait(str(message))
                if asked.qsize() == 1:
                    await socket.send('{"type": "ack", "id": ""}')

        async with (
            serve(answer_once, "127.0.0.1", 0, subprotocols=[Subprotocol("contrada")]) as server,
            runtime_of("node and ws", package, "") as runtime,
        ):
            port = next(iter(server.sockets)).getsockname()[1]
            found = await runtime.run(
                """async url => {
                  const limits = { quietMs: 20, answerMs: 2000 };
                  let client;
                  const lost = new Promise(resolve => {
                    const onState = (state, error) => state === "lost" && resolve(error.message);
                    contrada.connect(url, { ...runtime, limits, onState }).then(it => client = it);
                  });
                  const reason = await lost;
                  await client.close();
                  return reason;
                }""",
                f"http://127.0.0.1:{port}",
            )
        assert found == "the broker gave no answer within 2000 ms"

    go()


def test_the_conformance_vectors(package: Path) -> None:
    """A client would read or write other values and messages than a broker."""
    done = run_tool(package, NODE or "node", VECTORS_RUNNER, package / "dist", FILE)
    assert done.returncode == 0, done.stderr
    sent = [Notification.from_json(line) for line in done.stdout.split("\n") if line]
    assert [(each.body.hex(), values_of(each)) for each in sent] == [
        (each.body.hex(), values_of(each)) for each in NOTIFICATIONS.values()
    ]
    assert sent[-2].envelope.sequence == 1
    assert (sent[-1].envelope.ttl_us, sent[-1].envelope.priority) == (60_000_000, 9)


def test_closing_while_the_broker_is_away(package: Path, place: Place) -> None:
    """A program would not end, since a timer or an attempt to connect keeps it alive."""

    @on_loop
    async def go() -> None:
        async with runtime_of("node and ws", package, "") as runtime:
            with place.broker():
                await runtime.run(CONNECT, {"url": place.address, "token": place.token})
                await runtime.run("async () => { globalThis.all = await client.subscribe('a=1') }")
            found = await runtime.run("""async () => {
              while (states.at(-1) !== "lost") await new Promise(resolve => setTimeout(resolve, 5));
              const waiting = client.publish({ a: 1 }).catch(error => error.message);
              await client.close();
              await client.close();
              const late = await client.publish({ a: 1 }).catch(error => error.name);
              return [await waiting, late, await all.next() ?? null, states];
            }""")
        assert found == [
            *("the client is closed; connect again", "ClosedError", None),
            ["connected", "lost", "closed"],
        ]

    go()


def test_closing_during_work(package: Path, place: Place) -> None:
    """Work that is done would be repeated, a handler that closes its subscription wait for itself,
    or a second close never be done.
    """

    @on_loop
    async def go() -> None:
        async with runtime_of("node and ws", package, "") as runtime:
            await runtime.run(CONNECT, {"url": place.address, "token": place.token})
            found = await runtime.run("""async () => {
              const subscribe = () => client.subscribe("order any", { durable: "orders" });
              const publish = order => client.publish({ order }, { delivery: "certified" });
              const outside = await subscribe();
              await publish(1);
              let goOn, handling;
              const work = new Promise(resolve => goOn = resolve);
              await new Promise(begun => handling = outside.handle(() => { begun(); return work }));
              await outside.close();
              goOn();
              await handling;
              const inside = await subscribe();
              await publish(2);
              await inside.handle(async () => {
                await client.publishAll([]); // It cannot be told from another task any more.
                await inside.close();
              });
              const again = await subscribe();
              await publish(3);
              const record = await again.next();
              const answer = client.publish({ order: 2 });
              await Promise.all([client.close(), client.close(), answer]);
              return [record.notification.attributes.order, record.attempt, await record.ack()];
            }""")
        assert found == [3, 1, False]

    with place.broker():
        go()


def test_the_error_of_a_call_is_kept(package: Path, place: Place) -> None:
    """A program would read that its record cannot be returned, and not what failed."""

    @on_loop
    async def go() -> None:
        async with connected("node and ws", package, "", place) as runtime:
            found = await runtime.run("""async () => {
              const orders = await client.subscribe("order any", { durable: "orders" });
              await client.publish({ order: 1 }, { delivery: "certified" });
              const handling = orders.handle(record => {
                record.nack = () => Promise.reject(new Error("refused"));
                throw new Error("no room");
              });
              return handling.catch(error => error.message);
            }""")
        assert found == "no room"

    with place.broker():
        go()


def test_a_message_that_is_too_large(package: Path, place: Place) -> None:
    """A publisher would not read why its connection ended, or lose its subscriptions."""

    @on_loop
    async def go() -> None:
        async with connected("node and ws", package, "", place) as runtime:
            found = await runtime.run("""async () => {
              const all = await client.subscribe("a any");
              const body = "x".repeat(2 ** 20);
              const error = await client.publish({ a: 1 }, { body }).catch(error => error);
              await client.publish({ a: 2 });
              const { attributes } = await all.next();
              return [error.message, error.mayHaveArrived, attributes, all.losses];
            }""")
        # 1006: the connection was cut before the client read why.
        assert "1009" in found[0] or "1006" in found[0]
        assert found[1:] == [True, {"a": 2}, {"reconnect": 1}]

    with place.broker():
        go()


def test_the_package_has_the_version_of_the_project() -> None:
    """A user would install a client of another broker."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    package = json.loads((SOURCE / "package.json").read_text("utf-8"))
    assert package["version"] == project["version"]
    page = (REPOSITORY / "docs" / "typescript.md").read_text("utf-8")
    assert f"contrada-{project['version']}.tgz" in page


@needs_browser
def test_a_page_of_another_origin(package: Path, origin: str, tmp_path: Path) -> None:
    """Any page that a person opens could read the broker of their machine."""
    elsewhere = Place(tmp_path, "https://desk.example")

    @on_loop
    async def go() -> None:
        async with runtime_of("chromium", package, origin) as runtime:
            found = await runtime.run(
                """({ url, token }) => contrada.connect(url, { token })
                  .then(() => "", error => [error.name, error.mayHaveArrived])""",
                {"url": elsewhere.address, "token": elsewhere.token},
            )
        # The greeting waits for the handshake: nothing was sent.
        assert found == ["ConnectionError", False]

    with elsewhere.broker():
        go()


def test_a_subscription_that_the_broker_ends(package: Path, place: Place) -> None:
    """A reader would wait for ever, or create a subscription again that was removed."""

    @on_loop
    async def go() -> None:
        async with connected("node and ws", package, "", place) as runtime:
            await runtime.run("""async () => {
              globalThis.orders = await client.subscribe("order any", { durable: "orders" });
              globalThis.other = await client.subscribe("order any");
            }""")
            async with httpx.AsyncClient(
                base_url=place.address, headers={"authorization": f"Bearer {place.token}"}
            ) as http:
                ended = await http.delete("/queues", params={"name": "orders"})
            assert ended.status_code == 204
            found = await runtime.run("""async () => {
              const end = await orders.next().catch(error => [error.status, error.message]);
              await client.publish({ order: 1 });
              return [end, (await other.next()).attributes, states];
            }""")
        assert found == [
            [409, "\"orders\": 'orders': the subscription has ended (409)"],
            {"order": 1},
            ["connected"],
        ]

    with place.broker():
        go()
