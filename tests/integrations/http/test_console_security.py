"""The console's users: what they may see, and what pages of others and hostile texts cannot do."""

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import contrada as ct
from contrada.errors import ServiceError
from contrada.net.broker.users import Users, UserSettings
from contrada.net.wire.tokens import new_token
from tests.asynchronous import on_loop, until
from tests.browsers import needs_browser, page_of
from tests.gossip.udp.groups import group_of
from tests.integrations.http.conftest import serving
from tests.integrations.http.console_tour import SHOWN, pages_of
from tests.integrations.http.test_console import use_token
from tests.net.test_authenticator import ALL, RECORD, TOKEN

pytestmark = [pytest.mark.slow, needs_browser]

GUEST, GUEST_RECORD = new_token("guest")
PAST, PAST_RECORD = new_token("past")
HIDDEN_WORD = "takeover-of-ibm"

ASKED_LATER = ("receiver", "questions", "application")
"""Pages that ask the broker for nothing until they are used."""

TRADER = UserSettings(token=RECORD, inspect=True, sinks=True, **ALL)
VISITOR = UserSettings(token=GUEST_RECORD, subscribe='symbol = "DIS"', durable=["guest"])
FORMER = UserSettings(token=PAST_RECORD, expires=datetime(2020, 1, 1, tzinfo=UTC), **ALL)


def known() -> Users:
    return Users.of("here", {"desk": TRADER, "guest": VISITOR, "past": FORMER})


async def subscribe(page: Any, text: str) -> Any:
    """Subscribes on the receiver's page; returns the part of the page with the subscription."""
    await page.locator("input").and_(page.get_by_label("Filter")).fill(text)
    await page.get_by_role("button", name="Subscribe", exact=True).click()
    return page.get_by_role("region", name=f"Subscription {text}")


@on_loop
async def test_a_user_is_sent_only_what_they_may_see(tmp_path: Path) -> None:
    """A page would hide what its user may not see, and the browser have it all the same."""
    finished: list[Any] = []
    async with (
        serving(tmp_path / "events.db", users=known(), token=TOKEN) as it,
        it.service.subscribe(f'note = "{HIDDEN_WORD}"'),
        page_of(f"{it.gateway.address}/#queues", expected="401") as trader,
        page_of(f"{it.gateway.address}/#queues", expected="40") as visitor,
    ):
        async with it.service.subscribe("everything", durable=f"desk-{HIDDEN_WORD}"):
            pass
        await it.service.publish({"symbol": "IBM", "note": HIDDEN_WORD}, delivery="certified")
        await use_token(trader, TOKEN)
        await trader.get_by_role("button", name=f"desk-{HIDDEN_WORD}").click()
        await trader.get_by_text(f'"note":"{HIDDEN_WORD}"').wait_for()

        visitor.on("requestfinished", lambda request: finished.append(request))
        await use_token(visitor, GUEST)
        await visitor.get_by_text("No durable subscription.").wait_for()
        for name in await pages_of(visitor):
            link = visitor.locator(f'nav [href="#{name}"]')
            if name in ASKED_LATER:
                await link.click()
                continue
            async with visitor.expect_response(lambda answer: "healthz" not in answer.url):
                await link.click()
        await visitor.locator('nav [href="#receiver"]').click()
        refused = await subscribe(visitor, "everything")
        await refused.get_by_text("may not subscribe").wait_for()
        allowed = await subscribe(visitor, 'symbol = "DIS"')
        await allowed.get_by_text("connected").wait_for()
        await it.service.publish({"symbol": "IBM", "note": HIDDEN_WORD})
        await it.service.publish({"symbol": "DIS", "note": "dividend"})
        await allowed.get_by_text("1 events").wait_for()
        await allowed.get_by_text("dividend").wait_for()
        assert HIDDEN_WORD not in await visitor.content()
        assert len(finished) > 5
        for each in finished:
            body = await (await each.response()).body()
            assert (each.url, HIDDEN_WORD.encode() in body) == (each.url, False)

        shown = {"authorization": f"Bearer {GUEST}"}
        for path in ("/queues", "/queues/records?name=desk", "/metrics", "/subscriptions"):
            answer = await it.http.get(path, headers=shown)
            assert (path, HIDDEN_WORD in answer.text) == (path, False)


@on_loop
async def test_a_token_that_is_not_valid_is_reported(tmp_path: Path) -> None:
    """A user would see the queues of another one's token, or not learn that theirs has ended."""
    async with (
        serving(tmp_path / "events.db", users=known(), token=TOKEN) as it,
        it.service.subscribe("n any", durable="desk"),
        page_of(f"{it.gateway.address}/#queues", expected="40") as page,
    ):
        refused = page.get_by_role("alert")
        row = page.get_by_role("row", name="desk 0 0 0")
        for token, reason in ((f"{TOKEN}x", "token"), (PAST, "expired")):
            await use_token(page, TOKEN)
            await row.wait_for()
            await use_token(page, token)
            await refused.get_by_text(reason).wait_for()
            await row.wait_for(state="detached")
        await use_token(page, TOKEN)
        await row.wait_for()
        await page.locator('nav [href="#receiver"]').click()
        events = await subscribe(page, "n any")
        await events.get_by_text("connected").wait_for()
        it.broker.change_users(Users.of("here", {"guest": VISITOR}))
        await events.get_by_text("token").wait_for()
        await page.locator('nav [href="#queues"]').click()
        await refused.get_by_text("token").wait_for()
        await row.wait_for(state="detached")


@on_loop
async def test_a_token_is_kept_in_memory_only() -> None:
    """A later page, or a proxy's log, would have the token; a cookie would let others act."""
    async with (
        serving(users=known(), token=TOKEN) as it,
        page_of(f"{it.gateway.address}/", expected="401") as page,
    ):
        addresses: list[str] = []
        page.on("request", lambda request: addresses.append(request.url))
        await page.get_by_role("alert").wait_for()
        await use_token(page, TOKEN)
        for name in await pages_of(page):
            await page.locator(f'nav [href="#{name}"]').click()
        await page.locator('nav [href="#receiver"]').click()
        await (await subscribe(page, "n any")).get_by_text("connected").wait_for()
        secret = TOKEN.split(".")[1]
        stored = "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])"
        assert await page.evaluate(stored) == '[{},{},""]'
        assert await page.context.cookies() == []
        assert not [each for each in [*addresses, page.url] if secret in each]
        await page.locator('nav [href="#queues"]').click()
        await page.reload()
        await page.get_by_role("alert").wait_for()


BREAK_POLICY = """async other => {
  const blocked = [];
  addEventListener("securitypolicyviolation", event => blocked.push(event.effectiveDirective));
  const add = (name, values) =>
    document.body.append(Object.assign(document.createElement(name), values));
  add("script", { textContent: "window.hacked = 1" });
  add("script", { src: `${other}/console/console.js` });
  add("img", { src: `${other}/image.png` });
  add("iframe", { src: other });
  document.body.insertAdjacentHTML("beforeend", "<b onclick='window.hacked = 1'>x</b>");
  document.body.lastChild.click();
  document.body.insertAdjacentHTML("beforeend", "<form action='/events' method=post></form>");
  document.forms[document.forms.length - 1].submit();
  setTimeout("window.hacked = 1");
  await fetch(`${other}/healthz`).catch(() => {});
  while (blocked.length < 8) await new Promise(resolve => setTimeout(resolve));
  return [window.hacked, blocked.sort()];
}"""


@on_loop
async def test_the_policy_blocks_scripts_in_the_page_and_other_hosts() -> None:
    """A text that became an element by an error would run, or send the token elsewhere."""
    async with (
        serving() as it,
        page_of(
            f"{it.gateway.address}/", expected="Content Security Policy", others=["localhost:9"]
        ) as page,
    ):
        hacked, blocked = await page.evaluate(BREAK_POLICY, "http://localhost:9")
        assert hacked is None
        assert blocked == [
            *("connect-src", "form-action", "frame-src", "img-src"),
            *("script-src", "script-src-attr", "script-src-elem", "script-src-elem"),
        ]


CROSS = """async ([other, token]) => {
  const authorization = `Bearer ${token}`, given = { method: "POST", mode: "no-cors" };
  const text = JSON.stringify({ text: '{"n": 1}' });
  const answers = [
    fetch(`${other}/queues`, { headers: { authorization } }),
    fetch(`${other}/queues`),
    fetch(`${other}/console/publications`, { ...given, body: text }),
    fetch(`${other}/events?access_token=${token}`, { ...given, body: text }),
  ].map(each => each.then(answer => answer.type, () => "refused"));
  return Promise.all(answers);
}"""


@on_loop
async def test_a_page_of_another_origin_cannot_use_the_port() -> None:
    """A page that an operator opens elsewhere would publish, or read the queues, as they may."""
    trader = known()
    async with (
        serving(users=trader, token=TOKEN) as it,
        it.service.subscribe("everything") as events,
        serving() as elsewhere,
    ):
        own = it.gateway.address
        async with page_of(
            f"{elsewhere.gateway.address}/healthz",
            expected="CORS policy|ERR_FAILED|403|404",
            others=[own.removeprefix("http://")],
        ) as page:
            found = await page.evaluate(CROSS, [own, TOKEN])
            assert found == ["refused", "refused", "opaque", "opaque"]
        assert it.gateway.counts.events == 0
        await it.service.publish({"last": True})
        assert (await events.next(20))["last"] is True


HOSTILE = (
    "<img src='x' onerror='window.hacked=1'/><script>window.hacked=1</script>"
    "<svg onload='window.hacked=1'></svg><a href='javascript:window.hacked=1'>x</a>"
)
HARMLESS = """() => [window.hacked,
  document.querySelectorAll("body img, body script, body a:not(nav a), svg[onload]").length]"""


def link_of(trial: object) -> str:
    packed = base64.b64encode(json.dumps(trial).encode()).decode()
    return f"#playground?{packed}"


@on_loop
async def test_no_text_becomes_an_element_or_a_script(tmp_path: Path) -> None:
    """A publisher, or the author of a link or a file, would act with the token of its reader."""
    quoted = json.dumps(HOSTILE)
    document = f"<doc a={quoted.replace('<', '&lt;')}><![CDATA[{HOSTILE}]]><p>{HOSTILE}</p></doc>"
    document = document.replace('\\"', "'")
    record = json.dumps({HOSTILE: HOSTILE, "n": 1})
    async with (
        serving(tmp_path / "events.db") as it,
        it.service.subscribe(f"note = {quoted}"),
        it.service.subscribe(ct.Filter({HOSTILE: ct.ops.eq(HOSTILE)})),
        page_of(f"{it.gateway.address}/", expected="400") as page,
    ):

        async def is_harmless() -> None:
            assert await page.evaluate(HARMLESS) == [None, 0]

        async with it.service.subscribe("n any", durable="desk"):
            pass
        await it.service.publish({HOSTILE: HOSTILE, "n": 1}, delivery="certified")
        texts = {"text": f"note = {quoted}", "other": f"{HOSTILE} = 1", "records": record}
        for trial in (texts, {"text": HOSTILE, "dialect": HOSTILE, "records": document}):
            await page.goto(f"{it.gateway.address}/console/{link_of(trial)}")
            await page.get_by_text("of 1 match").wait_for()
            await page.get_by_role("table").last.get_by_text("window.hacked").first.wait_for()
            await is_harmless()
        odd = [{"text": {"type": "img"}, "records": [HOSTILE]}, [HOSTILE], None, {"other": 5}]
        for fragment in (*map(link_of, odd), f"#{HOSTILE}", f"#playground?{HOSTILE}"):
            await page.goto(f"{it.gateway.address}/console/{fragment}")
            await page.reload()
            await page.get_by_text("1 of 3 match").wait_for()
            await is_harmless()
        await use_token(page, f"{HOSTILE}.secret")
        await page.get_by_text("as <img").wait_for()
        await is_harmless()
        await use_token(page, "")

        await page.locator('nav [href="#receiver"]').click()
        await subscribe(page, f"note = {quoted}")
        events = await subscribe(page, "n any")
        await until(lambda: it.gateway.counts.streams == 2)
        await it.service.publish({HOSTILE: HOSTILE, "n": 1, "note": HOSTILE})
        await events.get_by_text("1 events").wait_for()
        await events.get_by_label("Attribute").fill(HOSTILE)
        await events.get_by_role("button", name="1", exact=True).click()
        await events.get_by_label("Event", exact=True).get_by_text("hacked").first.wait_for()
        await is_harmless()

        await page.locator('nav [href="#sender"]').click()
        hostile_file = tmp_path / f"{HOSTILE.replace('/', '')}.xml"
        hostile_file.write_text(document, "utf-8")
        await page.get_by_label("File").set_input_files(hostile_file)
        await page.locator(SHOWN).get_by_text("Document of a receiver").click()
        await page.get_by_role("row").last.get_by_text("window.hacked").first.wait_for()
        await is_harmless()

        await page.locator('nav [href="#queues"]').click()
        await page.get_by_role("button", name="desk").click()
        await page.locator(SHOWN).get_by_text("window.hacked").first.wait_for()
        await is_harmless()


CONTROLS = "a\x00b\x1b[2Jc\u202ed\u2028e"
"""Characters that end a text, move a terminal's cursor, or turn the direction of writing."""


@on_loop
async def test_no_answer_of_a_broker_becomes_an_element_or_a_script(tmp_path: Path) -> None:
    """Names, filters and errors of others would act on the pages that only show the broker."""
    hostile = f"{HOSTILE}{CONTROLS}"

    def broken(_: Any) -> Iterator[dict[str, Any]]:
        yield {"n": 1}
        raise ServiceError(hostile)

    async with (
        group_of([(0, 0), (0, 1)]) as nodes,
        nodes[1].subscribe(ct.Filter({HOSTILE: ct.ops.eq(hostile)})),
        serving(tmp_path / "events.db", groups=nodes[:1]) as it,
        it.service.subscribe(ct.Filter({HOSTILE: ct.ops.eq(hostile)})),
        it.service.offer(None, ct.RecordSource([{HOSTILE: hostile, "n": 1}]), name="desk/rows"),
        it.service.offer("n any", broken, name="desk/broken"),
        page_of(f"{it.gateway.address}/#questions", expected="400") as page,
    ):
        shown = page.locator(SHOWN)

        async def is_shown_as_text(within: Any) -> None:
            await within.get_by_text("window.hacked").first.wait_for()
            assert await page.evaluate(HARMLESS) == [None, 0]

        await shown.get_by_role("textbox", name="Question").fill("n any")
        await shown.get_by_role("button", name="Ask").click()
        await is_shown_as_text(shown.get_by_role("region", name="Sources"))
        await is_shown_as_text(shown.get_by_role("region", name="Answers"))
        await shown.get_by_role("textbox", name="Question").fill(hostile)
        await shown.get_by_role("button", name="Ask").click()
        await shown.get_by_role("alert").wait_for()
        assert await page.evaluate(HARMLESS) == [None, 0]

        await page.locator('nav [href="#network"]').click()
        record = json.dumps({HOSTILE: hostile})
        await shown.get_by_role("textbox", name="Notification").fill(record)
        await is_shown_as_text(shown.get_by_role("list", name="Hops"))
        await is_shown_as_text(shown.get_by_role("treeitem"))
        await shown.get_by_role("textbox", name="Notification").fill(hostile)
        await shown.get_by_role("list", name="Hops").wait_for(state="detached")
        assert await page.evaluate(HARMLESS) == [None, 0]

        await page.locator('nav [href="#gossip"]').click()
        await is_shown_as_text(shown.get_by_role("region", name="Running group"))
