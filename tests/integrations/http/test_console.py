"""The console of the HTTP port: its page, its trials, and the browser in which it runs."""

import asyncio
import gzip
import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

import contrada as ct
from contrada.integrations.console import console_pages
from contrada.integrations.files.subscription_files import DIALECTS
from contrada.integrations.http import GatewayLimits, gateway, request_slots
from contrada.model.languages.atoms import KEYWORDS
from contrada.net.broker.users import UserSettings
from contrada.net.wire.tokens import new_token
from tests.asynchronous import on_loop, until
from tests.browsers import needs_browser, page_of
from tests.integrations.http.conftest import LOCAL, serving
from tests.net.test_authenticator import TOKEN, desk, users

GUEST, GUEST_RECORD = new_token("guest")


async def use_token(page: Any, token: str) -> None:
    """Enters a token as the user of a page does."""
    await page.locator("header input[name=token]").fill(token)
    await page.get_by_role("button", name="Use", exact=True).click()


TRIAL = {"text": "price < 100", "records": '{"price": 50}'}


@on_loop
async def test_the_page_loads_nothing_from_elsewhere() -> None:
    """A script of another host could read the token, or a page of another site frame this one."""
    async with serving() as it:
        moved = await it.http.get("/")
        assert moved.headers["location"] == "/console/"
        first, second = [await it.http.get("/console/") for _ in range(2)]
        policy = first.headers["content-security-policy"]
        for part in ("default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"):
            assert part in policy
        assert policy != second.headers["content-security-policy"]
        assert "http" not in first.text
        script = await it.http.get("/console/console.js")
        assert script.headers["content-type"].startswith("text/javascript")
        assert (await it.http.get("/console/../gateway.py")).status_code == 404
        assert (await it.http.get("/console/%2e%2e/playground.py")).status_code == 404


def test_the_pages_are_small() -> None:
    """The console would take seconds to open over a slow connection."""
    folder = Path(console_pages.__file__).parent / "static"
    files = [it for it in folder.iterdir() if it.suffix in (".js", ".css", ".html")]
    assert sum(len(gzip.compress(each.read_bytes())) for each in files) < 200_000


@on_loop
async def test_the_page_has_the_words_of_the_parser_and_of_the_dialects() -> None:
    """The editor would complete former keywords, and a new dialect could not be chosen."""
    async with serving() as it:
        page = (await it.http.get("/console/")).text
    words = dict(re.findall(r'<meta name="(keywords|dialects)" content="([^"]*)">', page))
    assert set(words["keywords"].split()) == KEYWORDS
    assert words["dialects"].split() == list(DIALECTS)


@on_loop
async def test_a_trial_needs_a_user_of_the_broker() -> None:
    """Strangers would have the processor of a broker that is closed to them."""
    async with serving(users=users(desk=desk()), token=TOKEN) as it:
        answer = await it.http.post("/console/trials", json=TRIAL)
        assert answer.status_code == 401
        assert (await it.http.get("/console/")).status_code == 200


@on_loop
async def test_a_trial_is_answered() -> None:
    """The playground would show nothing, or a malformed request end without a reason."""
    async with serving(limits=GatewayLimits(trial_bytes_max=100)) as it:
        answer = await it.http.post("/console/trials", json=TRIAL)
        assert answer.json()["records"][0]["matches"] is True
        for body, status in (("{", 400), ('{"txet": 1}', 400), (json.dumps(TRIAL) + " " * 99, 413)):
            refused = await it.http.post("/console/trials", content=body)
            assert (refused.status_code, bool(refused.json()["error"])) == (status, True)


@on_loop
async def test_types_are_listed_for_users_who_may_see_filters() -> None:
    """A page would offer no types, or show a user the filters of others."""
    guest = UserSettings(token=GUEST_RECORD, subscribe=True)
    async with (
        serving(users=users(desk=desk(inspect=True), guest=guest), token=TOKEN) as it,
        it.service.subscribe("`@is.Tick` any and price < 3"),
    ):
        for token, types in ((TOKEN, ["Tick"]), (GUEST, [])):
            bearer = {"authorization": f"Bearer {token}"}
            answer = (await it.http.get("/console/types", headers=bearer)).json()
            assert (answer["types"], "reason" in answer) == (types, not types)


@on_loop
async def test_one_trial_of_a_user_runs_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """One user would keep the playground from all others, and many the thread for ever."""
    began, go_on = Event(), Event()

    def slow(_: object) -> dict[str, object]:
        began.set()
        go_on.wait()
        return {}

    monkeypatch.setattr(gateway, "answer_trial", slow)
    monkeypatch.setattr(request_slots, "_TRIER", ThreadPoolExecutor(1))
    async with serving(limits=GatewayLimits(trials_max=2)) as it:
        tokens = [{"authorization": f"Bearer {name}.s"} for name in "abc"]
        try:
            running = [
                asyncio.create_task(it.http.post("/console/trials", json=TRIAL, headers=each))
                for each in tokens[:2]
            ]
            await until(lambda: len(it.gateway._trials._slots._running) == 2 and began.is_set())
            again = await it.http.post("/console/trials", json=TRIAL, headers=tokens[0])
            assert (again.status_code, again.headers["retry-after"]) == (429, "1")
            third = await it.http.post("/console/trials", json=TRIAL, headers=tokens[2])
            assert third.status_code == 503
        finally:
            go_on.set()
        assert [(await each).status_code for each in running] == [200, 200]
        assert not it.gateway._trials._slots._running


@pytest.mark.slow
@needs_browser
@on_loop
async def test_a_filter_is_tried_in_a_browser(tmp_path: Path) -> None:
    """The page would not load, not answer while its user types, or lose the trial in its link."""
    async with serving() as it, page_of(f"{it.gateway.address}/", color_scheme="dark") as page:
        await page.get_by_text("1 of 3 match", exact=False).wait_for()
        box = page.get_by_label("Filter", exact=True).get_by_role("textbox")
        await box.fill("price <")
        await page.get_by_text("line 1, column 8: found the end of the text").wait_for()
        await box.fill("symb")
        await box.press("Control+Space")
        await page.get_by_role("option", name="symbol").click()
        await page.keyboard.type(' = "IBM" or symbol wild')
        await page.get_by_role("option", name="wildcard").click()
        await page.keyboard.type(' "?BM"')
        await page.get_by_role("row", name="3 matches").wait_for()
        await page.get_by_label("Dialect").first.select_option("sql")
        await box.fill("Price > 100")
        await page.get_by_role("row", name="3 matches").wait_for()
        await page.get_by_role("button", name="Copy a link").click()
        await page.wait_for_url("**/console/#playground?*")
        await page.reload()
        await page.get_by_role("row", name="3 matches").wait_for()
        assert await page.get_by_label("Dialect").first.input_value() == "sql"
        await page.screenshot(path=tmp_path / "playground.png")


@pytest.mark.slow
@needs_browser
@on_loop
async def test_arriving_events_are_tried_in_a_browser() -> None:
    """A person would have to write examples, or try others than those that arrive."""
    async with serving() as it, page_of(f"{it.gateway.address}/") as page:
        await page.get_by_label("Filter", exact=True).get_by_role("textbox").fill("n >= 1100")
        await page.get_by_role("button", name="Collect events").click()
        await until(lambda: it.gateway.counts.streams == 1)
        # Fewer than the queue of a slow reader has.
        for first in range(0, 1_200, 100):
            await it.service.publish_batch({"n": n} for n in range(first, first + 100))
            await page.get_by_text(f"{first + 100} seen").wait_for()
        await page.get_by_role("button", name="Try the last ones").click()
        await page.get_by_text("100 of 1000 match").wait_for()
        await until(lambda: it.gateway.counts.streams == 0)


@pytest.mark.slow
@needs_browser
@on_loop
async def test_a_refused_token_is_reported_in_the_page() -> None:
    """A user would wait for answers that the broker does not give them."""
    async with (
        serving(users=users(desk=desk()), token=TOKEN) as it,
        page_of(f"{it.gateway.address}/", expected="401") as page,
    ):
        await page.get_by_role("alert").get_by_text("token").wait_for()


@pytest.mark.slow
@needs_browser
@on_loop
async def test_queues_are_seen_and_changed_in_a_browser(tmp_path: Path) -> None:
    """An operator would see other counts than the broker's, or lose records by one wrong click."""
    told = users(desk=desk(), guest=UserSettings(token=GUEST_RECORD, subscribe=True))
    async with (
        serving(tmp_path / "events.db", users=told, token=TOKEN) as it,
        page_of(f"{it.gateway.address}/#queues", expected="40") as page,
    ):
        retention = ct.Retention(attempts_max=1, dead_letter="desk.dead")
        async with it.service.subscribe("n any", durable="desk", retention=retention):
            pass
        for n in (9007199254740993, 2):
            await it.service.publish({"n": n}, delivery="certified")
        async with it.service.subscribe(durable="desk", auto_acknowledge=False) as events:
            got = [(await events.next(20)).position for _ in range(2)]
            await events.nack(*got)
            while (await it.service.queues.state("desk")).dead < 2:
                pass

        await page.get_by_role("alert").wait_for()  # A stranger.
        await use_token(page, GUEST)
        await page.get_by_text("No durable subscription.").wait_for()  # None of theirs.
        await use_token(page, TOKEN)
        await page.get_by_role("row", name="desk.dead 2 0 0").wait_for()
        await page.get_by_role("button", name="desk.dead").click()
        await page.get_by_text('"n":9007199254740993').wait_for()
        await page.get_by_role("button", name="Redrive").click()
        await page.get_by_role("button", name="Cancel").click()
        assert (await it.service.queues.state("desk.dead")).unread == 2
        await page.get_by_role("button", name="Redrive").click()
        await page.get_by_role("alertdialog").get_by_role("button", name="Redrive").click()
        await page.get_by_text("desk.dead: redriven 2").wait_for()
        await page.get_by_role("row", name="desk 2 0 0").wait_for()
        assert (await it.service.queues.state("desk")).unread == 2

        async with it.service.subscribe(durable="desk", auto_acknowledge=False) as events:
            await events.next(20)
            await page.get_by_role("row", name="desk 0 2 0").wait_for()
            await page.get_by_role("button", name="desk", exact=True).click()
            await page.get_by_role("button", name="Give back").click()
            await page.get_by_role("alertdialog").get_by_role("button", name="Give back").click()
            await page.get_by_text("desk: given back 2").wait_for()
            await page.get_by_role("row", name="desk 2 0 0").wait_for()
        await page.screenshot(path=tmp_path / "queues.png")


@pytest.mark.slow
@needs_browser
@on_loop
async def test_events_are_received_in_a_browser(tmp_path: Path) -> None:
    """A person who watches would miss events, see wrong counts, or lose them with the broker."""
    async with serving() as it, page_of(f"{it.gateway.address}/#receiver") as page:
        for text in ("price < 100", "symbol = 'IBM'"):
            await page.get_by_label("Filter").fill(text)
            await page.get_by_role("button", name="Subscribe", exact=True).click()
        cheap = page.get_by_role("region", name="price < 100")
        other = page.get_by_role("region", name="IBM")
        await until(lambda: it.gateway.counts.streams == 2)
        for part in range(20):
            prices = [(part * 1_000 + n) / 200 for n in range(1_000)]
            await it.service.publish_batch(
                {"price": each, "symbol": "DIS" if each < 50 else "IBM", "n": 2**53 + 1}
                for each in prices
            )
            want = (part + 1) * 1_000 + max(0, part - 9) * 1_000
            while it.gateway.counts.delivered < want:
                await asyncio.sleep(0)
        await cheap.get_by_text("20000 events").wait_for()
        await other.get_by_text("10000 events").wait_for()
        await cheap.get_by_label("Attribute").fill("price")
        await cheap.get_by_role("img", name="Plot of price").wait_for()
        await cheap.get_by_label("Attribute").fill("symbol")
        await cheap.get_by_role("row", name="IBM 10000").wait_for()
        assert await cheap.get_by_role("listitem").count() < 50
        await cheap.get_by_role("button", name="Pause").click()
        await cheap.get_by_role("button", name="20000", exact=True).click()
        await cheap.get_by_label("Event", exact=True).get_by_text("9007199254740993").wait_for()
        async with page.expect_download() as found:
            await other.get_by_role("button", name="CSV").click()
        lines = Path(await (await found.value).path()).read_text("utf-8").splitlines()
        assert (len(lines), "9007199254740993" in lines[-1]) == (10_001, True)
        await page.screenshot(path=tmp_path / "receiver.png")


@pytest.mark.slow
@needs_browser
@on_loop
async def test_a_document_is_sent_from_a_browser(tmp_path: Path) -> None:
    """A sender would publish other notifications than the page shows, or not see a refusal."""
    guest = UserSettings(token=GUEST_RECORD, subscribe=True)
    async with (
        serving(users=users(desk=desk(), guest=guest), token=TOKEN) as it,
        it.service.subscribe("everything") as events,
        page_of(f"{it.gateway.address}/#sender", expected="40") as page,
    ):
        await use_token(page, GUEST)
        await page.get_by_role("button", name="Publish 1").click()
        await page.get_by_text("not published").wait_for()
        await use_token(page, TOKEN)
        await page.get_by_label("Strategy").select_option("split")
        await page.get_by_text('"backslash.story.title":"Two"').wait_for()
        await page.get_by_label("Strategy").select_option("index")
        await page.get_by_text("Document of a receiver").click()
        await page.get_by_text("<title>Two</title></story>").last.wait_for()
        await page.get_by_role("button", name="Publish 1").click()
        await page.get_by_text("published 1").wait_for()
        assert (await events.next(20))["backslash.story.1.title"] == "Two"
        rows = tmp_path / "rows.csv"
        rows.write_text("n,s\n1,a\n2,b\n", "utf-8")
        await page.get_by_label("File").set_input_files(rows)
        await page.get_by_role("button", name="Publish 2").click()
        await page.get_by_text("published 2").wait_for()
        assert [(await events.next(20))["n"] for _ in range(2)] == [1, 2]
        await page.screenshot(path=tmp_path / "sender.png")


@on_loop
async def test_a_document_is_fetched_where_the_rules_allow_it() -> None:
    """A user would read what only the broker's host may, or a document of any size."""
    other = UserSettings(token=GUEST_RECORD, subscribe=True, publish=True)
    told = users(desk=desk(sinks=True), guest=other)
    async with (
        serving(users=told, token=TOKEN, sinks=LOCAL) as it,
        serving(users=told, token=TOKEN) as careful,
    ):
        cases = (
            (it, TOKEN, "/healthz", 200, '{"status":"ok"}'),
            (it, GUEST, "/healthz", 403, "sinks"),
            (it, TOKEN, "/nothing", 400, "answers 404"),
            (it, TOKEN, "/console/libraries.js", 400, "trial_bytes_max"),
            (careful, TOKEN, "/healthz", 400, "does not allow"),
        )
        for served, token, path, status, text in cases:
            answer = await served.http.post(
                "/console/fetches",
                json={"address": f"{it.gateway.address}{path}"},
                headers={"authorization": f"Bearer {token}"},
            )
            shown = answer.json()
            found = (path, answer.status_code, text in (shown.get("text") or shown["error"]))
            assert found == (path, status, True), shown


@pytest.mark.slow
@needs_browser
@on_loop
async def test_a_document_is_named_in_a_browser() -> None:
    """A sender would have to save a document before it can be sent."""
    async with (
        serving(sinks=LOCAL) as it,
        page_of(f"{it.gateway.address}/#sender", expected="400") as page,
    ):
        await page.get_by_label("Address").fill("ftp://host/a.xml")
        await page.keyboard.press("Enter")
        await page.get_by_text("not loaded: 'ftp://host/a.xml': expected http").wait_for()
        await page.get_by_label("Address").fill(f"{it.gateway.address}/healthz")
        await page.get_by_role("button", name="Load").click()
        await page.get_by_role("cell", name='{"status":"ok"}').wait_for()


@pytest.mark.slow
@needs_browser
@on_loop
async def test_subscriptions_and_texts_stay_while_another_page_is_shown() -> None:
    """A person who sends a document would not see in the receiver that it arrives."""
    async with serving() as it, page_of(f"{it.gateway.address}/#receiver") as page:

        async def go_to(name: str) -> None:
            await page.get_by_role("navigation").get_by_role("link", name=name).click()

        await page.get_by_role("textbox", name="Filter").fill("n any")
        await page.get_by_role("button", name="Subscribe", exact=True).click()
        await until(lambda: it.gateway.counts.streams == 1)
        await go_to("Playground")
        # The field of the receiver has the same name, until the page changes.
        box = page.get_by_role("textbox", name="Filter", exact=True).and_(
            page.locator(".cm-content")
        )
        await box.fill("n > 1")
        await go_to("Sender")
        await page.get_by_role("textbox", name="Document").fill('{"n": 5}')
        await page.get_by_role("cell", name='{"n":5}').wait_for()
        await page.get_by_role("button", name="Publish 1").click()
        await page.get_by_text("published 1").wait_for()
        await go_to("Receiver")
        await page.get_by_text("1 events").wait_for()
        await go_to("Playground")
        assert await box.inner_text() == "n > 1"
        await go_to("Sender")
        assert await page.get_by_role("textbox", name="Document").inner_text() == '{"n": 5}'
