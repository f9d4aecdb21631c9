"""The network in the console: three brokers as processes, a browser, and the rights of its user."""

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import trustme

from contrada.connections import connect
from contrada.errors import InvalidValueError, NotPermittedError
from contrada.integrations.http import BrokerRules, Gateway, GatewayLimits, local_services
from contrada.integrations.http.network_api import NetworkServices
from contrada.net.broker.broker import Broker
from contrada.net.broker.users import Users, UserSettings
from contrada.net.client.client_limits import NetworkLimits
from contrada.net.wire.address import parse_address
from contrada.net.wire.tls import Tls
from contrada.net.wire.tokens import new_token
from tests.asynchronous import on_loop, until
from tests.browsers import needs_browser, page_of
from tests.integrations.http.test_console import use_token
from tests.net.networks import network
from tests.net.processes import Process, contrada, serving

LOOK = "/console/network"


@asynccontextmanager
async def looking(broker: Broker, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    """Yields an HTTP client of the gateway of a broker."""
    async with (
        Gateway(local_services(broker), port=0, **options) as gateway,
        httpx.AsyncClient(base_url=gateway.address, timeout=30) as http,
    ):
        yield http


@on_loop
async def test_a_look_has_all_brokers_and_the_way_of_a_notification() -> None:
    """The page would show another network, or a way that begins elsewhere."""
    async with (
        network(3, ((0, 1), (1, 2))) as brokers,
        looking(brokers[0]) as http,
        connect(brokers[2].address) as reader,
        reader.subscribe("price < 100"),
    ):
        await until(lambda: brokers.is_at_rest)
        found = (await http.post(LOOK, json={"record": '{"price": 5}'})).json()
        assert [each["name"] for each in found["brokers"]] == ["b0", "b1", "b2"]
        assert [each["broker"] for each in found["hops"]] == ["b0", "b1", "b2"]
        assert found["hops"][2]["matching"][0]["text"] == "price < 100"
        (link,) = found["brokers"][0]["links"]
        assert (link["wanted"], link["sent"]) == (0, 0)
        found = (await http.post(LOOK, json={"record": '{"price": 5}', "at": "b2"})).json()
        assert [each["broker"] for each in found["hops"]] == ["b2"]
        asked = {"broker": "b2", "neighbour": "b1"}
        found = (await http.post("/console/forest", json=asked)).json()
        assert [each["text"] for each in found["filters"]] == ["price < 100"]
        found = (await http.post("/console/forest", json={"broker": "b2"})).json()
        assert found["parents"] == [None]
        found = (await http.post(LOOK, json={"record": '{"price": '})).json()
        assert (len(found["brokers"]), found["hops"]) == (3, [])
        assert found["fault"].startswith("records:1:10: ")
        for bad in ({"record": 1}, {"broker": "b9"}, {"broker": "b1", "first": -1}):
            refused = await http.post("/console/forest" if "broker" in bad else LOOK, json=bad)
            assert (refused.status_code, bool(refused.json()["error"])) == (400, True)


@on_loop
async def test_only_listed_brokers_see_the_token_of_a_viewer() -> None:
    """A neighbour of another company would get tokens, and the gateway call any address."""
    async with (
        network(2, ((0, 1),)) as brokers,
        looking(brokers[0], brokers=BrokerRules(("oslo.example", "127.0.0.2"))) as http,
    ):
        _, other = (await http.post(LOOK, json={})).json()["brokers"]
        assert "http.brokers does not list '127.0.0.1'" in other["reason"]
        assert "counts" not in other
    rules = BrokerRules(("oslo.example:7655", "10.2.0.0/16"))
    for text in ("contradas://OSLO.example", "contradas://10.2.3.4:9", "contrada://0x0a020304"):
        rules.check(parse_address(text))
    for text in ("contradas://oslo.example:1", "contrada://10.3.0.1", "contrada://localhost"):
        with pytest.raises(NotPermittedError, match=r"http\.brokers"):
            rules.check(parse_address(text))
    for entry in ("public", "a/b", "x:0"):
        with pytest.raises(InvalidValueError):
            BrokerRules((entry,))


@on_loop
async def test_a_viewer_never_comes_as_the_broker(tmp_path: Path) -> None:
    """A viewer without rights elsewhere would have those of the certificate of this broker."""
    authority = trustme.CA()
    identity = authority.issue_cert("127.0.0.1", "oslo")
    identity.private_key_and_cert_chain_pem.write_to_path(tmp_path / "oslo.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    tls = Tls(tmp_path / "oslo.pem", authority=tmp_path / "ca.pem")
    everything = {"publish": True, "subscribe": True, "inspect": True}
    users = Users.of("here", {"oslo": UserSettings(certificate="oslo", **everything)})  # type: ignore[arg-type]
    async with Broker(port=0, users=users, tls=tls) as broker:
        services = NetworkServices(BrokerRules(), GatewayLimits(), tls)
        with pytest.raises(Exception, match="wants a token"):
            async with services.use("", parse_address(broker.address)):
                pass
        await services.aclose()
        own = tls.client_context()
        async with connect(broker.address, tls=own) as service:  # As its neighbours come.
            assert (await service.inspection()).name == ""  # type: ignore[attr-defined]


@on_loop
async def test_a_viewer_has_one_look_at_a_time_and_few_connections() -> None:
    """One viewer would have the gateway ask the whole network many times at once."""
    limits = GatewayLimits(network=NetworkLimits(broker_answer_s=20), network_addresses_max=0)
    async with network(2, ((0, 1),)) as brokers, looking(brokers[0], limits=limits) as http:
        _, other = (await http.post(LOOK, json={})).json()["brokers"]
        assert "network_addresses_max" in other["reason"]
        assert len(brokers[1]._sessions) == 0


class Three(NamedTuple):
    """Three brokers in a line, as processes: the options of each, and the address of the page."""

    addresses: dict[str, str]
    processes: dict[str, Process]
    options: dict[str, list[str]]
    page: str


@contextmanager
def three(stack: ExitStack, **options: list[str]) -> Iterator[Three]:
    found = Three({}, {}, {}, "")
    before: list[str] = []
    page = ""
    for name in ("north", "middle", "south"):
        own = ["--name", name, "--store", "memory:", *before, *options.get(name, [])]
        http = ["--http", "0"] if name == "north" else []
        process, address = stack.enter_context(serving("--port", "0", *own, *http))
        if http:
            assert process.stdout is not None
            page = process.stdout.readline().strip()
        found.addresses[name], found.processes[name] = address, process
        found.options[name] = [*own, "--port", address.rpartition(":")[2]]
        before = ["--neighbour", address]
    yield found._replace(page=page)


@pytest.mark.slow
@needs_browser
@on_loop
async def test_a_network_is_watched_in_a_browser(tmp_path: Path) -> None:
    """An operator would see another network or way than there is, or have to reload the page."""
    with ExitStack() as stack, three(stack) as it:
        async with (
            connect(it.addresses["south"]) as reader,
            connect(it.addresses["north"]) as publisher,
            page_of(f"{it.page}/#network", viewport={"width": 1200, "height": 1500}) as page,
        ):
            for n in range(120):
                await reader.subscribe(f"price < {n}").__aenter__()
            for name in ("north", "middle", "south"):
                await page.get_by_role("row", name=f"{name} answers").wait_for()
            box = page.get_by_role("textbox", name="Notification")
            await box.fill('{"price": 110}')
            await page.get_by_text("delivered at south").wait_for()
            hops = page.get_by_role("list", name="Hops").get_by_role("listitem")
            await hops.filter(has_text="south from middle: delivers for 9 subscr").first.wait_for()
            await box.fill('{"price": 500}')
            await page.get_by_text("delivered nowhere").wait_for()
            await page.get_by_text("not to middle: no matching subscription").wait_for()
            await box.fill('{"price": ')
            way = page.get_by_role("region", name="Way")
            await way.get_by_role("alert").get_by_text("records:1:10: found").wait_for()
            assert await page.get_by_role("row", name="away").count() == 0

            graph = page.get_by_role("group", name="Graph of the network")
            south = graph.get_by_role("button", name=re.compile("^south"))
            await south.focus()
            await page.keyboard.press("Enter")
            await page.get_by_role("row", name="middle peer 120 1 99 %").wait_for()
            await box.fill('{"price": 110}')
            tree = page.get_by_role("tree", name="Forest of filters")
            root = tree.get_by_role("treeitem", name="price < 119")
            await root.focus()
            await page.keyboard.press("ArrowRight")
            await tree.get_by_role("treeitem", name="price < 118").wait_for()
            await page.keyboard.press("ArrowDown")
            assert "price < 118" in await page.evaluate("document.activeElement.ariaLabel")
            await page.keyboard.press("ArrowLeft")
            await page.keyboard.press("ArrowLeft")
            await page.get_by_role("combobox", name="Forest").select_option(
                label="all filters, by age"
            )
            await tree.get_by_role("treeitem", name="price < 0,").wait_for()
            await tree.get_by_role("treeitem", name="more").dispatch_event("click")
            await tree.get_by_role("treeitem", name="price < 119").wait_for()
            width = "document.querySelectorAll('.zoom svg')[0].width.baseVal.value"
            before = await page.evaluate(width)
            await page.get_by_role("button", name="Zoom in").first.click()
            await graph.hover()
            await page.mouse.wheel(0, -100)
            while await page.evaluate(width) < 1.4 * before:
                await graph.hover()
            await page.get_by_role("region", name="Graph of the network").focus()
            await page.keyboard.press("0")
            while await page.evaluate(width) > 1.1 * before:
                await graph.hover()

            it.processes["middle"].kill()
            it.processes["middle"].wait()
            await page.get_by_role("row", name="middle away").wait_for()
            await page.get_by_role("row", name="south away").wait_for()
            stack.enter_context(serving(*it.options["middle"]))
            for name in ("middle", "south"):
                await page.get_by_role("row", name=f"{name} answers").wait_for()
            await publisher.publish({"price": 110})
            await page.screenshot(path=tmp_path / "network.png")


@pytest.mark.slow
@needs_browser
@on_loop
async def test_a_viewer_sees_what_each_broker_shows(tmp_path: Path) -> None:
    """A user would see brokers that they may not inspect, or one refusal would hide the others."""
    tokens = {name: new_token(name) for name in ("desk", "guest", "middle", "south")}
    desk, guest = tokens["desk"][0], tokens["guest"][0]
    link = "publish = true\nsubscribe = true\npublishers = ['*']\nlink = true"
    rights = {
        "desk": "publish = 'price any'\nsubscribe = true\ninspect = true",
        "guest": "publish = true\nsubscribe = true",
        "middle": link,
        "south": link,
    }
    options: dict[str, list[str]] = {}
    for name, known in (("north", rights), ("middle", rights), ("south", ("middle",))):
        lines = [f"[users.{user}]\ntoken = '{tokens[user][1]}'\n{rights[user]}" for user in known]
        path = tmp_path / f"{name}.toml"
        path.write_text("\n".join(lines))
        options[name] = ["--users", str(path)]
        if name in tokens:
            token_file = tmp_path / f"{name}.token"
            token_file.write_text(tokens[name][0])
            options[name] += ["--token-file", str(token_file)]
    with ExitStack() as stack, three(stack, **options) as it:
        async with page_of(
            f"{it.page}/#network", expected="40", viewport={"width": 380, "height": 800}
        ) as page:
            await use_token(page, guest)
            await page.get_by_role("alert").get_by_text("may not inspect").wait_for()
            assert await page.get_by_role("row").count() == 0
            await use_token(page, desk)
            await page.get_by_role("row", name="middle answers").wait_for()
            await page.get_by_role("row", name="south away").wait_for()
            away = page.get_by_role("row", name="south away")
            await away.get_by_text("the token is not").wait_for()
            assert await page.evaluate("document.documentElement.scrollWidth") <= 380
            await page.get_by_role("textbox", name="Notification").fill('{"symbol": "A"}')
            await page.get_by_text("You: 'desk' may not publish").wait_for()
            await use_token(page, guest)
            await page.get_by_role("alert").get_by_text("may not inspect").wait_for()
            assert await page.get_by_role("row").count() == 0
            said = contrada("inspect", it.addresses["south"])
            assert said.returncode != 0
