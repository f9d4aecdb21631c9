"""Questions of the console: the events of a question, and the page in a browser."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import contrada as ct
from contrada.errors import ServiceError
from contrada.integrations.http import GatewayLimits
from contrada.net.broker.users import UserSettings
from contrada.net.wire.tokens import new_token
from tests.asynchronous import on_loop, until
from tests.browsers import needs_browser, page_of
from tests.integrations.http.conftest import Lines, Served, serving
from tests.integrations.http.test_console import use_token
from tests.net.test_authenticator import TOKEN, desk, users

ASK = "/console/questions"
GUEST, GUEST_RECORD = new_token("guest")
BIG = 2**53 + 1
DIS = [{"symbol": "DIS", "price": n, "n": BIG} for n in range(700)]
IBM = [{"symbol": "IBM", "price": 130.5}]


class Waiting:
    """A source that gives one item, and the next one when it is allowed to."""

    def __init__(self) -> None:
        self.may_go_on, self.has_stopped = asyncio.Event(), asyncio.Event()

    async def answer(self, _: Any) -> AsyncIterator[dict[str, Any]]:
        try:
            yield {"symbol": "WAIT", "price": 1}
            await self.may_go_on.wait()
            yield {"symbol": "WAIT", "price": 2}
        finally:
            self.has_stopped.set()


def broken(_: Any) -> Iterator[dict[str, Any]]:
    """A source that fails after one item."""
    yield {"symbol": "BAD", "price": 5}
    raise ServiceError("the disk is gone")


@asynccontextmanager
async def sources_of(it: Served) -> AsyncIterator[Waiting]:
    """Offers two tables, a source that waits and one that fails."""
    waiting, offer = Waiting(), it.service.offer
    async with (
        offer(None, ct.RecordSource(DIS), name="desk/dis"),
        offer(None, ct.RecordSource(IBM), name="desk/ibm"),
        offer("symbol = 'WAIT' and price any", waiting, name="desk/waiting"),
        offer("symbol = 'BAD' and price any", broken, name="desk/broken"),
    ):
        yield waiting


async def events_of(it: Served, **question: Any) -> dict[str, list[Any]]:
    """Asks, and returns the contents of all events by their names."""
    found: dict[str, list[Any]] = {}
    async with it.http.stream("POST", ASK, json=question) as response:
        lines = Lines(response)
        while "end" not in found:
            _, name, data = await lines.next()
            found.setdefault(name, []).append(json.loads(data))
    return found


def states(found: dict[str, list[Any]]) -> dict[str, tuple[str, int]]:
    """Returns the last state and count of each source."""
    return {it["name"]: (it["state"], it["count"]) for it in found["sources"][-1]["sources"]}


@on_loop
async def test_answers_and_sources_arrive() -> None:
    """A person would miss answers, or not know which sources failed to give theirs."""
    async with serving() as it, sources_of(it):
        found = await events_of(it, question="symbol in ('DIS', 'IBM', 'BAD') and price any")
        rows = [row for event in found["answers"] for row in event["rows"]]
        got = {name: [r["answer"] for r in rows if r["source"] == name] for name in states(found)}
        assert (got["desk/dis"], got["desk/ibm"]) == (DIS, IBM)
        assert states(found) == {
            "desk/broken": ("failed", 0),  # Its first item has not left it.
            "desk/dis": ("answered", 700),
            "desk/ibm": ("answered", 1),
        }
        last = found["sources"][-1]
        assert (last["has_ended"], last["is_complete"]) == (True, False)
        assert last["sources"][0]["name"] == "desk/broken"  # A cut list would show it.
        assert "the disk is gone" in last["sources"][0]["reason"]


@on_loop
async def test_aggregates_of_shown_answers_are_those_of_the_network() -> None:
    """The page would show two results of one question, by the way in which it was asked."""
    asked = {
        "question": "symbol in ('DIS', 'IBM') and price any",
        "aggregates": ["count", "sum(price)", "top 2(price)"],
        "by": "symbol",
    }
    async with serving() as it, sources_of(it):
        network = await events_of(it, **asked)
        here = await events_of(it, **asked, shows_answers=True)
        assert network["groups"][-1] == here["groups"][-1]
        assert here["groups"][-1]["groups"][0]["count"] == 700
        assert "answers" not in network
        assert sum(len(event["rows"]) for event in here["answers"]) == 701
        assert network["sources"][-1]["is_complete"]


@on_loop
async def test_a_source_that_is_too_late_is_reported() -> None:
    """A person would take the answers of the quick sources for all answers."""
    async with serving() as it, sources_of(it):
        asked = "symbol in ('IBM', 'WAIT') and price any"
        # The quick one answers long before, also on a busy machine.
        found = await events_of(it, question=asked, timeout_s=1.5)
        late = {"desk/ibm": ("answered", 1), "desk/waiting": ("timed out", 1)}
        assert states(found).items() >= late.items()  # On a busy machine the service is late, too.
        assert not found["sources"][-1]["is_complete"]


@on_loop
async def test_an_ended_connection_stops_the_sources() -> None:
    """Closed pages would keep sources at work, and their user's place, for ever."""
    limits = GatewayLimits(questions_per_user_max=1)
    async with serving(limits=limits) as it, sources_of(it) as waiting:
        async with it.http.stream("POST", ASK, json={"question": "symbol = 'WAIT'"}) as response:
            await Lines(response).next()
            second = await it.http.post(ASK, json={"question": "symbol = 'IBM'"})
            assert (second.status_code, "questions_per_user_max" in second.text) == (429, True)
        await asyncio.wait_for(waiting.has_stopped.wait(), 20)
        await until(lambda: not it.gateway._questions._slots._running)
        assert (await events_of(it, question="symbol = 'IBM'"))["answers"]


@on_loop
@pytest.mark.parametrize(
    ("question", "status", "reason"),
    [
        ({"question": "price <"}, 400, "line 1, column 8"),
        ({"question": "price any", "aggregates": ["median(price)"]}, 400, "expected one of count"),
        ({"question": "price any", "by": "symbol"}, 400, "add one, such as count"),
        ({"question": "price any", "aggregates": ["count"], "sort": "n"}, 400, "are for answers"),
        ({"question": "price any", "timeout_s": 0}, 400, "timeout_s"),
        ({"question": "price any", "limit": 0}, 400, "limit"),
        ({"question": f"n = '{'x' * 20_000}'"}, 400, "filter_characters_max"),
        ({"query": "price any"}, 400, "query"),
    ],
)
async def test_a_wrong_question_is_refused(
    question: dict[str, Any], status: int, reason: str
) -> None:
    """A slip would look like a question without answers."""
    async with serving() as it:
        refused = await it.http.post(ASK, json=question)
        assert (refused.status_code, reason in refused.json()["error"]) == (status, True)
        assert not it.gateway._questions._slots._running


@on_loop
async def test_a_question_has_the_rights_of_its_token() -> None:
    """A user of the console would read data that the broker keeps from them."""
    guest = UserSettings(token=GUEST_RECORD, subscribe="symbol = 'IBM'", narrow=True)
    told = users(desk=desk(), guest=guest)
    async with serving(users=told, token=TOKEN) as it, sources_of(it):
        assert (await it.http.post(ASK, json={"question": "price any"})).status_code == 401
        it.http.headers["authorization"] = f"Bearer {GUEST}"
        refused = await it.http.post(ASK, json={"question": "symbol = 'DIS'"})
        assert refused.status_code == 403
        found = await events_of(it, question="price any")
        symbols = {row["answer"]["symbol"] for event in found["answers"] for row in event["rows"]}
        assert symbols == {"IBM"}


@pytest.mark.slow
@needs_browser
@on_loop
async def test_questions_are_asked_in_a_browser(tmp_path: Path) -> None:
    """A person would take incomplete answers for complete ones, or wait for a stopped question."""
    told = users(desk=desk(), guest=UserSettings(token=GUEST_RECORD))
    async with (
        serving(users=told, token=TOKEN) as it,
        sources_of(it) as waiting,
        page_of(f"{it.gateway.address}/#questions", expected="40", color_scheme="dark") as page,
    ):
        asked, status = page.get_by_role("textbox", name="Question"), page.get_by_role("status")
        ask = page.get_by_role("button", name="Ask")
        await use_token(page, GUEST)
        await asked.fill("price any")
        await ask.click()
        await page.get_by_role("alert").wait_for()  # May not.
        await use_token(page, TOKEN)
        await asked.fill("price <")
        await ask.click()
        await page.get_by_role("alert").get_by_text("line 1, column 8").wait_for()

        await asked.fill("symbol in ('DIS', 'IBM') and price any")
        await page.get_by_label("Links").fill("2")
        await page.keyboard.press("Enter")
        await status.get_by_text("701 answers. Complete: all 2 sources").wait_for()
        await status.get_by_text("Brokers beyond 2 links are not asked.").wait_for()
        await page.get_by_role("row", name="desk/dis answered 700").wait_for()
        await page.get_by_role("cell", name=str(BIG)).first.wait_for()
        await page.get_by_text("the first 500 of 701").wait_for()

        await asked.fill("price any")
        await page.get_by_label("Aggregates").fill("count, sum(price)")
        await page.get_by_label("By").fill("symbol")
        await page.get_by_label("Answers, too").check()
        await ask.click()
        await page.get_by_role("row", name="desk/waiting asked 1").wait_for()
        await page.get_by_role("row", name="DIS 700 244650").wait_for()
        await page.get_by_role("row", name="WAIT 1 1").wait_for()
        await status.get_by_text("Of 4 sources 1 have not ended yet.").wait_for()
        waiting.may_go_on.set()
        await page.get_by_role("row", name="WAIT 2 3").wait_for()
        await status.get_by_text("Answers may be missing of: desk/broken.").wait_for()
        await page.get_by_text("the disk is gone").wait_for()
        await page.screenshot(path=tmp_path / "questions.png", full_page=True)

        waiting.may_go_on.clear()
        waiting.has_stopped.clear()
        await ask.click()
        await page.get_by_role("row", name="WAIT 1 1").wait_for()
        await page.get_by_role("button", name="Cancel").click()
        await status.get_by_text("Cancelled").wait_for()
        await asyncio.wait_for(waiting.has_stopped.wait(), 20)
        await page.set_viewport_size({"width": 360, "height": 640})
        await page.wait_for_function("document.documentElement.scrollWidth <= 360")
        assert await asked.is_visible()
        await page.screenshot(path=tmp_path / "phone.png")
        answers = page.get_by_role("region", name="Answers")
        assert await answers.count() == 1
        await use_token(page, GUEST)  # Who may not read them.
        await answers.wait_for(state="detached")
