"""Gossip in the console: figures by a process, the groups of this process, and the page."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from contrada.cli import main
from contrada.integrations.console import gossip_figure
from contrada.integrations.http import GatewayLimits
from contrada.net.broker.users import UserSettings
from contrada.net.wire.tokens import new_token
from tests.asynchronous import on_loop, until
from tests.browsers import needs_browser, page_of
from tests.gossip.udp.groups import group_of
from tests.integrations.http.conftest import Lines, Served, serving
from tests.net.test_authenticator import TOKEN, desk, users

DRAW = "/console/figures"
GUEST, GUEST_RECORD = new_token("guest")
SMALL = {"figure": "6.10", "runs": 3, "branching": 6, "loss": 0.1, "interest": 0.5, "seed": 7}
SLOW = {"figure": "6.7", "runs": 1_000}
PLACES = [(0, 0), (0, 1), (1, 2), (3, 3)]


def command(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the rows that the command prints for a request."""
    options = [part for name, value in request.items() for part in (f"--{name}", str(value))]
    asked = ["simulate", "gossip", "--json", "--engine", "embedded", "--jobs", "1", *options]
    ran = CliRunner().invoke(main, asked)
    assert ran.exit_code == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


async def draw(it: Served, request: dict[str, Any]) -> list[tuple[str, Any]]:
    """Returns the names and contents of the events of a figure."""
    async with it.http.stream("POST", DRAW, json=request) as response:
        lines = Lines(response)
        found: list[tuple[str, Any]] = []
        while not found or found[-1][0] != "end":
            _, name, data = await lines.next()
            found.append((name, json.loads(data)))
    await until(lambda: not it.gateway._figures._slots._running)
    return found


@on_loop
async def test_a_figure_is_that_of_the_command() -> None:
    """The page would draw another figure than the command, for the same parameters."""
    async with serving() as it:
        (first, about), *points, last = await draw(it, SMALL)
        assert (first, last) == ("figure", ("end", {}))
        assert (about["points"], about["title"]) == (8, "Reliability by fanout, p₁ = 0.5")
        assert [name for name, _ in points] == ["point"] * 8
        assert [row for _, row in points] == command(SMALL)


@on_loop
@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        ({"figure": "6.14"}, "expected a figure: 6.7"),
        ({"figure": "6.7", "fanout": 0}, "F (fanout) is a whole number"),
        ({"figure": "6.7", "redundancy": 23}, "more than branching a = 22"),
        ({"figure": "6.7", "loss": "0.1"}, "$.loss"),
        ({"figure": "6.7", "runs": 1_001}, "FIGURE_RUNS_MAX = 1000"),
        ({"figure": "6.7", "levels": 5}, "FIGURE_GOSSIPERS_MAX = 1000000"),
        ({"figure": "6.10", "interest": 0}, "p₁"),
    ],
)
async def test_a_wrong_figure_is_refused(request_: dict[str, Any], reason: str) -> None:
    """A slip would be drawn, or one page take the whole machine."""
    async with serving() as it:
        ((name, content),) = await draw(it, request_)
        assert (name, reason in content["error"]) == ("end", True)


@on_loop
async def test_a_figure_ends_with_its_connection_or_its_time() -> None:
    """Closed pages, or a large figure, would keep a processor of the broker's machine for ever."""
    async with serving() as it:
        async with it.http.stream("POST", DRAW, json=SLOW) as response:
            await Lines(response).next()
            second = await it.http.post(DRAW, json=SMALL)
            assert (second.status_code, second.headers["retry-after"]) == (503, "1")
        await until(lambda: not it.gateway._figures._slots._running)
        assert len(await draw(it, SMALL)) == 10
    async with serving(limits=GatewayLimits(figure_wait_s=0.01)) as it:
        assert "figure_wait_s = 0.01" in (await draw(it, SLOW))[-1][1]["error"]


def test_a_process_without_memory_says_so(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """A figure that is too large would end without a reason."""

    def fails(_: object) -> Any:
        raise MemoryError

    monkeypatch.setattr(gossip_figure, "events_of", fails)
    monkeypatch.setattr("sys.stdin", _Input(msgspec.json.encode(SMALL)))
    monkeypatch.setattr("os.nice", lambda _: 0)
    monkeypatch.setattr("resource.setrlimit", lambda *_: None)
    gossip_figure.main()
    name, reason = msgspec.json.decode(capfdbinary.readouterr().out)
    assert (name, "FIGURE_BYTES_MAX" in reason) == ("error", True)


@on_loop
async def test_a_group_is_seen_as_its_participant_knows_it() -> None:
    """An operator would see participants, delegates or filters that the group does not have."""
    told = users(desk=desk(inspect=True), guest=UserSettings(token=GUEST_RECORD, subscribe=True))
    async with (
        group_of(PLACES) as nodes,
        nodes[1].subscribe("price < 100"),
        serving(users=told, token=TOKEN, groups=nodes[:1]) as it,
    ):
        as_guest = {"authorization": f"Bearer {GUEST}"}
        assert (await it.http.get("/console/groups", headers=as_guest)).status_code == 403
        it.http.headers["authorization"] = f"Bearer {TOKEN}"

        async def seen() -> dict[str, Any]:
            (group,) = (await it.http.get("/console/groups")).json()["groups"]
            return dict(group)

        group = await seen()
        while "price < 100" not in json.dumps(group["levels"], ensure_ascii=False):
            group = await seen()
        top, bottom = group["levels"]
        assert (group["address"], group["participants"], group["view_size"]) == ("0.0", 4, 12)
        assert [(line["address"], line["count"]) for line in top["lines"]] == [
            ("0", 2),
            ("1", 1),
            ("3", 1),
        ]
        delegates = [each["address"] for each in top["lines"][0]["delegates"]]
        assert delegates == ["0.0", "0.1"]
        assert [(line["address"], line["is_own"]) for line in bottom["lines"]] == [
            ("0.0", True),
            ("0.1", False),
        ]
        assert bottom["lines"][1]["delegates"][0]["place"] == nodes[1].place
        assert bottom["lines"][1]["filters"] == "price < 100"


@pytest.mark.slow
@needs_browser
@on_loop
async def test_figures_and_a_group_are_seen_in_a_browser(tmp_path: Path) -> None:
    """A person would see another figure than the command's, or a group that is gone."""
    rows = command({"figure": "6.13", "runs": 2, "branching": 6})
    async with (
        group_of(PLACES) as nodes,
        serving(groups=nodes[:1]) as it,
        page_of(f"{it.gateway.address}/#gossip", color_scheme="dark") as page,
    ):
        figures = page.get_by_role("region", name="Figures")
        simulate = page.get_by_role("button", name="Simulate")
        await page.get_by_role("combobox", name="Figure").select_option("6.13")
        await page.get_by_label("Branching a").fill("2")
        await simulate.click()
        await figures.get_by_role("alert").get_by_text("more than branching a = 2").wait_for()
        await page.get_by_label("Branching a").fill("6")
        await page.get_by_label("Runs").fill("2")
        await page.keyboard.press("Enter")
        await page.get_by_text(f"{len(rows)} of {len(rows)} points").wait_for()
        await page.get_by_text("--figure 6.13 --branching 6 --runs 2").wait_for()
        await page.get_by_role("img", name="Plot of Reliability, tuned").wait_for()
        points = page.get_by_role("region", name="Points").get_by_role("row")
        shown = [await each.inner_text() for each in (await points.all())[1:]]
        assert [line.split("\t")[:3] for line in shown] == [
            [f"{row['x']:g}", row["curve"], f"{row['simulated']:.4f}"] for row in rows
        ]
        await page.get_by_role("combobox", name="Figure").select_option("6.7")
        await page.get_by_label("Runs").fill("1000")
        await page.get_by_label("Branching a").fill("")
        await simulate.click()
        await page.get_by_text(" of 22 points").wait_for()
        await page.get_by_role("button", name="Stop").click()
        await figures.get_by_role("alert").get_by_text("stopped").wait_for()
        await until(lambda: not it.gateway._figures._slots._running)

        group = page.get_by_role("region", name="Running group")
        await group.get_by_text("4 participants as 0.0").wait_for()
        own = group.get_by_role("listitem").filter(has_text="0.*").first
        await own.get_by_role("listitem").filter(has_text=nodes[1].place).wait_for()
        await group.get_by_role("row", name="bytes sent").get_by_text("/s").wait_for()
        async with nodes[2].subscribe("price < 100"):
            await (
                group.get_by_role("listitem")
                .filter(has_text="1.*")
                .get_by_text("price < 100")
                .wait_for()
            )
        await page.screenshot(path=tmp_path / "gossip.png", full_page=True)
        await nodes[3].aclose()
        await group.get_by_text("3 participants as 0.0").wait_for()
        await page.set_viewport_size({"width": 360, "height": 640})
        # The plot follows its place a moment later.
        await page.wait_for_function("document.documentElement.scrollWidth <= 360")
        await page.screenshot(path=tmp_path / "phone.png", full_page=True)


@pytest.mark.slow
@needs_browser
@on_loop
async def test_a_page_without_a_group_says_how_to_see_one() -> None:
    """A person would wait for a group that no process can show."""
    async with serving() as it, page_of(f"{it.gateway.address}/#gossip") as page:
        await page.get_by_text("contrada gossip start --key group.key --http 8081").wait_for()


class _Input:
    """Standard input with these bytes."""

    def __init__(self, content: bytes) -> None:
        self.buffer = self
        self.read = lambda: content
