"""The receiver of the console: its form, patterns, types, details, exports, acknowledgements."""

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import contrada as ct
from tests.asynchronous import on_loop, until
from tests.browsers import needs_browser, page_of, serious_findings
from tests.integrations.http.conftest import Served, serving

pytestmark = [pytest.mark.slow, needs_browser]

FITS = """() => {
  const host = document.querySelector("[role=img]"), plot = host.querySelector(".u-wrap");
  return plot.offsetWidth === host.clientWidth && host.clientWidth < innerWidth / 2;
}"""
"""Whether the plot of the first of two subscriptions is as wide as its place."""


@dataclass
class Quote(ct.Obvent, name="receiver.Quote"):
    price: float


@dataclass
class Tick(Quote, name="receiver.Tick"):
    legs: list[int]


async def subscribe(it: Served, page: Any, text: str = "") -> Any:
    """Subscribes as the user of a page does; returns the region of the subscription."""
    before = it.gateway.counts.streams
    if text:
        await page.get_by_label("Filter").fill(text)
    await page.get_by_role("button", name="Subscribe", exact=True).click()
    await until(lambda: it.gateway.counts.streams == before + 1)
    return page.get_by_role("region", name="Subscription").last


async def fill_row(page: Any, number: int, **values: str) -> None:
    """Fills a row of the form."""
    row = page.get_by_role("group", name=f"Constraint {number}")
    for label, value in values.items():
        if label in ("join", "operator"):
            await row.get_by_role("combobox", name=label).select_option(value)
        else:
            await row.get_by_label(label.capitalize(), exact=True).fill(value)


async def downloaded(page: Any, region: Any, name: str) -> str:
    """Returns the file that a button saves."""
    async with page.expect_download() as found:
        await region.get_by_role("button", name=name).click()
    return Path(await (await found.value).path()).read_bytes().decode()


@on_loop
async def test_a_form_makes_the_text_of_a_filter() -> None:
    """A person who does not know the syntax would get another filter than the form shows."""
    async with serving() as it, page_of(f"{it.gateway.address}/#receiver") as page:
        await page.get_by_text("Form", exact=True).click()
        for number, (name, operator, value) in enumerate(
            (
                ("symbol", "=", "DIS"),
                ("price", "between", "10, 20.5"),
                ("title", "prefix", "5 o'clock"),
                ("not", "in", '7, "7", x, true, "a, b", o\'clock'),
                ("my field", "exists", ""),
            ),
            start=1,
        ):
            await fill_row(
                page, number, name=name, operator=operator, **({"value": value} if value else {})
            )
            await page.get_by_role("button", name="Add").click()
        await fill_row(page, 6, join="or", name="urgent", value="true")
        await page.get_by_label("Type", exact=True).fill("a.Quote")
        made = await page.get_by_label("Filter").input_value()
        assert ct.parse(made) == ct.parse(
            "@is.a.Quote exists and (symbol = 'DIS' and price between 10 and 20.5"
            " and title prefix \"5 o'clock\" and `not` in (7, '7', 'x', true, 'a, b', \"o'clock\")"
            " and `my field` exists or urgent = true)"
        )
        await subscribe(it, page)
        assert it.broker.statistics().subscriptions == 1
        assert await serious_findings(page) == []


@on_loop
async def test_a_pattern_is_subscribed_by_the_form(tmp_path: Path) -> None:
    """A person would not see which notifications belong together, in which order, and when."""
    async with serving() as it, page_of(f"{it.gateway.address}/#receiver") as page:
        await page.get_by_text("Form", exact=True).click()
        await fill_row(page, 1, name="gust", operator=">", value="35")
        await page.get_by_role("button", name="Add").click()
        await fill_row(page, 2, join="then", name="delay", operator=">", value="120")
        await page.get_by_label("By", exact=True).fill("origin")
        await page.get_by_label("Within").fill("5")
        text = "gust > 35 -> delay > 120 by origin within 5 min"
        assert await page.get_by_label("Filter").input_value() == text
        region = await subscribe(it, page)
        given = [{"gust": 40, "origin": "JFK"}, {"gust": 50, "origin": "EWR"}]
        for each in (*given, {"delay": 130, "origin": "JFK"}):
            await it.service.publish(each)
        await region.get_by_text("1 events").wait_for()
        row = await region.get_by_role("listitem").inner_text()
        times = [each[:12] for each in row.split("\n")[-1].split(" -> ")]
        assert '{"gust":40,"origin":"JFK"} -> ' in row
        assert [each[2] + each[5] + each[8] for each in times] == ["::.", "::."]
        await region.get_by_role("button", name="1", exact=True).click()
        assert await region.get_by_label("Envelope").count() == 2
        await region.get_by_label("Attribute").fill("2: delay")
        await region.get_by_role("row", name="130 1").wait_for()
        (line,) = (await downloaded(page, region, "JSON lines")).splitlines()
        match = [ct.Notification.from_json(json.dumps(each)) for each in json.loads(line)]
        assert [each["origin"] for each in match] == ["JFK", "JFK"]
        await page.screenshot(path=tmp_path / "pattern.png")


@on_loop
async def test_typed_events_are_subscribed_by_their_type(tmp_path: Path) -> None:
    """A person would miss objects of a subclass, or not learn what an object is."""
    async with (
        serving() as it,
        it.service.subscribe(Tick),
        page_of(f"{it.gateway.address}/#receiver") as page,
    ):
        await page.get_by_text("Form", exact=True).click()
        offered = page.locator("#types option")
        await offered.nth(1).wait_for(state="attached")
        assert [await each.get_attribute("value") for each in await offered.all()] == [
            "receiver.Quote",
            "receiver.Tick",
        ]
        await page.get_by_label("Type", exact=True).fill("receiver.Quote")
        region = await subscribe(it, page)
        for each in (Quote(1.5), Tick(2.5, [3]), {"price": 9.0}):
            await it.service.publish(each)
        await it.service.publish(Tick(3.5, [4]))
        await region.get_by_text("3 events").wait_for()
        await region.get_by_label("Attribute").fill("@types")
        await region.get_by_role("row", name="receiver.Tick < receiver.Quote 2").wait_for()
        await region.get_by_role("row", name="receiver.Quote 1", exact=True).wait_for()
        await region.get_by_role("button", name="3", exact=True).click()
        await region.get_by_text("vnd.contrada.obvent+msgpack, in hexadecimal").wait_for()
        await page.screenshot(path=tmp_path / "types.png")


@on_loop
async def test_details_plots_and_exports_have_all_of_an_event() -> None:
    """A person would see a part of an event as the whole, or open a formula in a spreadsheet."""
    order = {
        "shop": {"rate": 0.5},
        "items": [{"price": 4}, {"price": 7.5}],
        "note": '=HYPERLINK("x")',
    }
    async with serving() as it, page_of(f"{it.gateway.address}/#receiver") as page:
        region = await subscribe(it, page, "everything")
        envelope = ct.Envelope(id="o-1", sequence=17, priority=7, time_us=1_790_000_000_123_456)
        await it.service.publish(ct.Notification(order, envelope=envelope))
        await it.service.publish({"note": "-1", "n": -1, "+sum": 2**60})
        await region.get_by_text("2 events").wait_for()
        await region.get_by_role("button", name="1", exact=True).click()
        details = region.get_by_label("Event", exact=True)
        for name in ("id o-1", "sequence 17", "priority 7", "time 2026-09-21T14:13:20.123456Z"):
            await details.get_by_role("row", name=name).wait_for()
        assert json.loads(await details.get_by_label("Body").inner_text()) == order
        assert await serious_findings(page) == []
        for name, count in (("shop.rate", 1), ("$body.items[].price", 2)):
            await region.get_by_label("Attribute").fill(name)
            await region.get_by_role("img", name=f"Plot of {name}").wait_for()
            rows = region.get_by_role("table", name=f"Counts of {name}").get_by_role("row")
            assert await rows.count() == count
        other = await subscribe(it, page, "n any")
        await page.wait_for_function(FITS)
        await other.get_by_role("button", name="Unsubscribe").click()
        csv = await downloaded(page, region, "CSV")
        assert '"\'=HYPERLINK(""x"")"' in csv
        names, _, last, _ = csv.split("\r\n")
        cells = dict(zip(names.split(","), last.split(","), strict=True))
        assert (cells["note"], cells["n"], cells["'+sum"]) == ("'-1", "-1", str(2**60))
        lines = (await downloaded(page, region, "JSON lines")).splitlines()
        assert [dict(ct.Notification.from_json(each)) for each in lines][1]["+sum"] == 2**60


@on_loop
async def test_odd_times_and_names_are_shown() -> None:
    """One notification of a far time would end the drawing of the page; or all others would seem
    to have its attribute.
    """
    async with serving() as it, page_of(f"{it.gateway.address}/#receiver") as page:
        region = await subscribe(it, page, "everything")
        for time_us in (-62_135_596_800_000_000, 253_402_300_799_999_999):
            odd = ct.Notification({"__proto__": 7}, envelope=ct.Envelope(time_us=time_us))
            await it.service.publish(odd)
        await it.service.publish({"n": 1})
        await region.get_by_text("3 events").wait_for()
        rows = list(csv.DictReader((await downloaded(page, region, "CSV")).splitlines()))
        assert [each["__proto__"] for each in rows] == ["7", "7", ""]
        assert [each["'@time"] for each in rows[:2]] == [
            "0001-01-01T00:00:00.000000Z",
            "9999-12-31T23:59:59.999999Z",
        ]


@on_loop
async def test_records_are_acknowledged_by_hand(tmp_path: Path) -> None:
    """Records that a person has not dealt with would be lost, or come again afterwards."""
    async with (
        serving(tmp_path / "events.db") as it,
        page_of(f"{it.gateway.address}/#receiver", expected="ERR_") as page,
    ):
        await page.get_by_label("Durable name").fill("desk")
        await page.get_by_label("Acknowledge by hand").check()
        region = await subscribe(it, page, "n any")
        for n in range(3):
            await it.service.publish({"n": n}, delivery="certified")
        await region.get_by_text("3 events").wait_for()
        await region.get_by_role("button", name="2", exact=True).click()
        await region.get_by_role("button", name="Acknowledge up to here").click()
        await region.get_by_text("acknowledged up to 2").wait_for()
        assert (await it.service.queues.state("desk")).handed == 1
        await region.get_by_role("button", name="3", exact=True).click()
        await region.get_by_role("button", name="Give back").click()
        await region.get_by_text("given back: 3").wait_for()
        await region.get_by_text("1 of them again").wait_for()
        assert (await it.service.queues.state("desk")).attempts == 2
        (stream,) = next(iter(it.gateway._accesses._opened.values())).streams
        stream.cut()
        await region.get_by_text("2 of them again").wait_for()
        await region.get_by_role("button", name="Unsubscribe").click()
        await until(lambda: it.gateway.counts.streams == 0)
        assert (await it.service.queues.state("desk")).unread == 1


@on_loop
async def test_a_durable_subscription_goes_on_behind_the_last_event(tmp_path: Path) -> None:
    """Events that were on their way when a connection broke would be lost, or counted twice."""
    async with (
        serving(tmp_path / "events.db") as it,
        page_of(f"{it.gateway.address}/#receiver", expected="ERR_") as page,
    ):
        await page.get_by_label("Durable name").fill("desk")
        region = await subscribe(it, page, "n any")
        for n in range(3):
            await it.service.publish({"n": n}, delivery="certified")
        await region.get_by_text("3 events").wait_for()
        heads: list[str] = []
        page.on("request", lambda it: heads.append(it.headers.get("last-event-id", "")))
        (stream,) = next(iter(it.gateway._accesses._opened.values())).streams
        stream.cut()
        await until(lambda: "3" in heads)
        await it.service.publish({"n": 3}, delivery="certified")
        await region.get_by_text("4 events").wait_for()
        assert await region.get_by_text("again", exact=False).count() == 0


@on_loop
async def test_a_removed_durable_subscription_stays_removed(tmp_path: Path) -> None:
    """A page that a person left open would create a queue again that an operator removed."""
    async with (
        serving(tmp_path / "events.db") as it,
        page_of(f"{it.gateway.address}/#receiver") as page,
    ):
        await page.get_by_label("Durable name").fill("desk")
        region = await subscribe(it, page, "n any")
        await it.service.unsubscribe("desk")
        await region.get_by_text("'desk': the subscription has ended").wait_for()
        assert (await it.service.queues.states()).queues == []
        assert it.gateway.counts.requests["GET /subscribe", 200] == 1


@on_loop
async def test_a_refused_subscription_is_asked_for_once() -> None:
    """A page would ask for ever for what cannot be, and its user not learn why."""
    async with serving() as it, page_of(f"{it.gateway.address}/#receiver", expected="40") as page:
        await page.get_by_label("Filter").fill("price <")
        await page.get_by_role("button", name="Subscribe", exact=True).click()
        await page.get_by_text("line 1, column 8: found the end of the text").wait_for()
        await page.get_by_label("Filter").fill("price any")
        await page.get_by_label("Durable name").fill("desk")
        await page.get_by_role("button", name="Subscribe", exact=True).click()
        await page.get_by_text("no store").wait_for()
        await page.wait_for_timeout(1_500)  # Longer than the wait before a stream is opened again.
        assert it.gateway.counts.requests["GET /subscribe", 400] == 1
        assert it.gateway.counts.requests["GET /subscribe", 409] == 1
