"""Feeds that are polled: files, and a real server of HTTP."""

import asyncio
import gzip
import shutil
import threading
import tracemalloc
from collections.abc import Callable
from contextlib import aclosing
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from contrada.errors import ContradaError, InputError, LimitError, ServiceError
from contrada.integrations.feeds.feed_limits import FeedLimits
from contrada.integrations.feeds.feed_poller import FeedPoller, Poll
from contrada.integrations.feeds.feed_states import FeedStates
from contrada.integrations.feeds.fetcher import Fetcher, shown_source
from contrada.integrations.files import BadRecord, ReadOptions, Record
from tests.asynchronous import on_loop
from tests.integrations.feeds.web import Answer, answering, website

MONDAY = "Mon, 29 Jun 2015 10:35:00 GMT"


def rss(*titles: str) -> bytes:
    """A feed of entries with these guids, and titles behind a colon."""
    items = "".join(
        f"<item><guid>{title.partition(':')[0]}</guid><title>{title}</title></item>"
        for title in titles
    )
    return f"<rss><channel><title>T</title>{items}</channel></rss>".encode()


async def polled(poller: FeedPoller) -> list[Poll]:
    """One look at each feed."""
    return [poll async for poll in poller.polls()]


def titles(poll: Poll) -> list[object]:
    """The titles of a poll's records."""
    found = [each for each in poll.records if isinstance(each, Record)]
    return [each.notification["rss.channel.item.title"] for each in found]


def counts(poll: Poll) -> tuple[int, int, int, int]:
    """New, changed, unchanged, bad."""
    return poll.new, poll.changed, poll.unchanged, poll.bad


def page(data: bytes, status: int = 200, **headers: str) -> Answer:
    """A page with these bytes."""
    return lambda request: answering(request, data, status, **headers)


@on_loop
async def test_only_new_or_changed_entries_are_given(tmp_path: Path) -> None:
    """Each poll would yield all entries."""
    path = tmp_path / "feed.xml"
    poller = FeedPoller([str(path)])
    for data, expected, counted in (
        (rss("1:a", "2:b"), ["1:a", "2:b"], (2, 0, 0, 0)),
        (rss("1:a", "2:b"), [], (0, 0, 2, 0)),
        (rss("3:c", "1:a", "2:B"), ["3:c", "2:B"], (1, 1, 1, 0)),
        (rss(), [], (0, 0, 0, 0)),
        (rss("2:B"), [], (0, 0, 1, 0)),
    ):
        path.write_bytes(data)
        (poll,) = await polled(poller)
        assert (titles(poll), counts(poll)) == (expected, counted)


@on_loop
async def test_the_polls_of_one_minute_and_the_next(
    shared_data: Callable[..., Path], tmp_path: Path
) -> None:
    """Real alerts would be lost, or repeated."""
    first, second = (
        shared_data("xml_feeds", f"nws_cap_atom_2015-06-29T17{minute}.xml") for minute in (35, 36)
    )
    path = tmp_path / "us.atom"
    poller = FeedPoller([str(path)], states=FeedStates(tmp_path / "state"))
    shutil.copy(first, path)
    (poll,) = await polled(poller)
    assert counts(poll) == (377, 0, 0, 0)
    shutil.copy(second, path)
    (poll,) = await polled(FeedPoller([str(path)], states=FeedStates(tmp_path / "state")))
    assert counts(poll) == (15, 0, 368, 0)
    name = "feed.entry.id"
    found = {each.notification[name] for each in poll.records if isinstance(each, Record)}
    before, after = (
        {part.partition(b"</id>")[0].decode() for part in each.read_bytes().split(b"<id>")[2:]}
        for each in (first, second)
    )
    assert found == after - before
    assert len(found) == 15
    # Two titles were corrected, without a change of the date.
    edits = FeedPoller([str(first), str(second)], edits=True)
    assert [counts(each) for each in await polled(edits)] == [(377, 0, 0, 0), (15, 2, 366, 0)]


@on_loop
async def test_requests_to_a_server_are_conditional() -> None:
    """Each poll would take the whole feed again."""
    asked: list[tuple[str | None, str | None]] = []

    def answer(request: BaseHTTPRequestHandler) -> None:
        held = request.headers["If-None-Match"], request.headers["If-Modified-Since"]
        asked.append(held)
        if held[0] == '"1"':
            answering(request, b"", 304)
        else:
            answering(
                request, rss("1:a"), ETag='"1"', Last_Modified="Mon, 29 Jun 2015 10:35:00 GMT"
            )

    with website({"/feed": answer}) as address:
        poller = FeedPoller([f"{address}/feed"])
        for expected in ((1, 0, 0, 0), (0, 0, 1, 0)):
            (poll,) = await polled(poller)
            assert poll.error is None
            assert counts(poll) == expected
    assert asked == [(None, None), ('"1"', MONDAY)]


@on_loop
async def test_another_reading_asks_for_the_whole() -> None:
    """After a wrong `entries` was corrected, nothing would be new until the feed changes."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        status = 304 if request.headers["If-None-Match"] else 200
        answering(request, b"" if status == 304 else rss("1:a"), status, ETag='"1"')

    states = FeedStates()
    with website({"/feed": answer}) as address:
        for entries, expected in (
            ("entry", (0, 0, 0, 0)),
            ("item", (1, 0, 0, 0)),
            ("item", (0, 0, 1, 0)),
        ):
            options = ReadOptions(entries=entries)
            poller = FeedPoller([f"{address}/feed"], options, states=states)
            (poll,) = await polled(poller)
            assert counts(poll) == expected
            assert poll.source == f"{address}/feed"


@pytest.mark.quick_every(6)
@pytest.mark.parametrize(
    ("said", "wait_s"),
    [
        ("120", 120),
        ("999999999999999999999999", FeedLimits().retry_after_s_max),
        ("Fri, 31 Dec 9999 23:59:59 GMT", FeedLimits().retry_after_s_max),
        ("Mon, 29 Jun 2015 10:35:00 GMT", 0),
        ("-5", 0),
        ("soon", 0),
        ("٣", 0),
        ("", 0),
    ],
)
@pytest.mark.parametrize("status", [429, 503, 500])
@on_loop
async def test_a_busy_server_is_left_alone_for_its_retry_after(
    said: str, wait_s: float, status: int
) -> None:
    """It would be asked the more often the busier it is, and refuse at last for good."""
    asked: list[str] = []
    now_s = [0.0]

    def answer(request: BaseHTTPRequestHandler) -> None:
        asked.append(request.path)
        answering(request, b"", status, Retry_After=said.encode().decode("latin-1"))

    with website({"/a": answer, "/b": answer}) as address:
        async with Fetcher(lambda: now_s[0]) as fetcher:
            waits = status != 500 and wait_s > 0
            for after_s in (0.0, wait_s / 2, wait_s + 1):
                now_s[0] = after_s
                is_early = waits and after_s == wait_s / 2
                left = f"its server is busy, and asks to wait {wait_s / 2:.0f} s more"
                with pytest.raises(InputError, match=left if is_early else str(status)):
                    await fetcher.fetch(f"{address}/a")
            with pytest.raises(InputError, match=str(status)):
                await fetcher.fetch(f"{address}/b")
    assert asked == ["/a"] * (2 if waits else 3) + ["/b"]


@on_loop
async def test_a_failing_feed_is_reported_and_polled_again() -> None:
    """One server that is away would end the polling of all."""
    pages: dict[str, Answer] = {"/good": page(rss("1:a"))}
    with website(pages) as address:
        poller = FeedPoller([f"{address}/bad", f"{address}/good", "nowhere.xml"])
        bad, good, nowhere = await polled(poller)
        assert str(bad.error) == f"{address}/bad: the server answers 404 Not Found"
        assert titles(good) == ["1:a"]
        assert isinstance(nowhere.error, InputError)
        pages["/bad"] = page(rss("2:b"))
        bad, good, _ = await polled(poller)
        assert (titles(bad), titles(good)) == (["2:b"], [])
    (gone, *_) = await polled(poller)
    assert gone.error is not None
    assert "cannot be read" in str(gone.error)


@on_loop
async def test_the_time_of_a_fetch_is_that_of_its_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one would fail on a busy machine, while its library is imported."""
    httpx = pytest.importorskip("httpx")
    events = list[str]()

    def noted(name: str, function: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            events.append(name)
            return function(*arguments, **options)

        return call

    monkeypatch.setattr(httpx, "AsyncClient", noted("client", httpx.AsyncClient))
    monkeypatch.setattr(asyncio, "timeout", noted("time", asyncio.timeout))
    with website({"/one": page(rss("1:a"))}) as address:
        async with Fetcher() as fetcher:
            await fetcher.fetch(f"{address}/one")
    assert events[:2] == ["client", "time"]


@on_loop
async def test_a_server_is_bounded() -> None:
    """A hostile server would take all memory, or keep it waiting for ever."""
    limits = FeedLimits(feed_bytes_max=100_000, wait_s=0.2, fetch_s_max=1.0)

    def drips(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        try:
            while True:
                request.wfile.write(b" ")
                request.wfile.flush()
                threading.Event().wait(0.01)
        except OSError:
            pass

    def silent(request: BaseHTTPRequestHandler) -> None:
        request.rfile.read(1)

    packed = gzip.compress(rss("1:a"))
    pages: dict[str, Answer] = {
        "/large": page(b"x" * 100_001),
        "/bomb": page(gzip.compress(b"x" * 50_000_000), Content_Encoding="gzip"),
        "/twice": page(gzip.compress(packed), Content_Encoding="gzip, gzip"),
        "/damaged": page(b"none", Content_Encoding="gzip"),
        "/short": page(packed[:-9], Content_Encoding="gzip"),
        "/packed": page(packed, Content_Encoding="gzip"),
        "/round": page(b"", status=302, Location="/round"),
        "/moved": page(b"", status=301, Location="/packed"),
        "/away": page(b"", status=302, Location="file:///etc/passwd"),
        "/drips": drips,
        "/silent": silent,
    }
    expected = {
        "/large": "feed_bytes_max",
        "/bomb": "feed_bytes_max",
        "/twice": "packs it by 'gzip, gzip'",
        "/damaged": "damaged",
        "/short": "ends too early",
        "/round": "redirects",
        "/away": "cannot be read",
        "/drips": "fetch_s_max",
        "/silent": "cannot be read: ",
    }
    with website(pages) as address:
        async with Fetcher(limits=limits) as fetcher:
            for path, message in expected.items():
                with pytest.raises(ContradaError, match=message):
                    await fetcher.fetch(address + path)
            for path in ("/packed", "/moved"):
                assert (await fetcher.fetch(address + path)).data == rss("1:a")
            for wrong in ("http://", "http://[", "https://127.0.0.1:1/", "http://a..b/"):
                with pytest.raises(InputError, match="cannot be read"):
                    await fetcher.fetch(wrong)


@on_loop
async def test_no_more_is_unpacked_than_may_be_read() -> None:
    """Some kilobytes of a hostile server would become gigabytes, to be refused then."""
    limits = FeedLimits(feed_bytes_max=100_000)
    bomb = page(gzip.compress(b"x" * 50_000_000), Content_Encoding="gzip")
    with website({"/bomb": bomb}) as address:
        async with Fetcher(limits=limits) as fetcher:
            with pytest.raises(InputError, match="404"):  # Its library is loaded.
                await fetcher.fetch(f"{address}/none")
            tracemalloc.start()
            try:
                with pytest.raises(LimitError):
                    await fetcher.fetch(f"{address}/bomb")
                assert tracemalloc.get_traced_memory()[1] < 5_000_000
            finally:
                tracemalloc.stop()


@on_loop
async def test_unconsumed_entries_are_repeated(tmp_path: Path) -> None:
    """An entry would be lost where the run ends before it was published."""
    path = tmp_path / "feed.xml"
    path.write_bytes(rss("1:a"))
    poller = FeedPoller([str(path)], states=FeedStates(tmp_path / "state"))
    polls = poller.polls()
    assert titles(await anext(polls)) == ["1:a"]
    await polls.aclose()
    (poll,) = await polled(FeedPoller([str(path)], states=FeedStates(tmp_path / "state")))
    assert titles(poll) == ["1:a"]
    (poll,) = await polled(FeedPoller([str(path)], states=FeedStates(tmp_path / "state")))
    assert titles(poll) == []


@on_loop
async def test_options_of_reading_count(tmp_path: Path) -> None:
    """A feed would be read otherwise than any document; or a bad entry hide the others."""
    path = tmp_path / "feed.xml"
    path.write_bytes(rss("1", "x", "3"))
    types = {"rss.channel.item.title": "number"}
    (poll,) = await polled(FeedPoller([str(path)], ReadOptions(types=types)))
    assert titles(poll) == [1, 3]
    assert counts(poll) == (3, 0, 0, 1)
    index = ReadOptions(strategy="index")
    (poll,) = await polled(FeedPoller([str(path)], index))
    assert len(poll.records) == 3
    with pytest.raises(InputError):
        FeedPoller([str(path)], ReadOptions(strategy="xslt", stylesheet=b"<no/>"))


@on_loop
async def test_entries_of_a_broken_feed(tmp_path: Path) -> None:
    """One broken entry would cost all others of a feed."""
    path = tmp_path / "feed.xml"
    path.write_bytes(rss("1:a", "2:b").replace(b"<title>2:b</title>", b"<title>2:b</titel>"))
    (poll,) = await polled(FeedPoller([str(path)]))
    assert (titles(poll), counts(poll)) == (["1:a"], (1, 0, 0, 1))
    (bad,) = (each for each in poll.records if isinstance(each, BadRecord))
    assert bad.line == 1
    path.write_bytes(rss("1:a", "2:b"))


@on_loop
async def test_a_broken_entry_is_told_once(tmp_path: Path) -> None:
    """The same fault would be reported at each poll, and in each run."""
    path, state = tmp_path / "feed.xml", tmp_path / "state"
    broken = rss("1:a", "2:b").replace(b"<title>2:b</title>", b"<title>2:b</titel>")
    path.write_bytes(broken)
    poller = FeedPoller([str(path)], states=FeedStates(state))
    told = [(await polled(poller))[0].bad for _ in range(2)]
    poller = FeedPoller([str(path)], states=FeedStates(state))
    told.append((await polled(poller))[0].bad)
    path.write_bytes(broken.replace(b"2:b", b"3:b"))
    told.append((await polled(poller))[0].bad)
    assert told == [1, 0, 0, 1]


@on_loop
async def test_common_faults_of_form_are_read(tmp_path: Path) -> None:
    """Feeds that every reader shows would be refused."""
    path = tmp_path / "feed.xml"
    data = rss("1:a&nbsp;&eacute;&amp;amp;", "2:<![CDATA[&nbsp;]]>")
    path.write_bytes(b"\n PHP notice \n<?xml version='1.0'?>" + data)
    (poll,) = await polled(FeedPoller([str(path)]))
    assert titles(poll) == ["1:a\xa0\xe9&amp;", "2:&nbsp;"]
    path.write_bytes(rss("1:&unheard;", "2:b"))
    (poll,) = await polled(FeedPoller([str(path)]))
    assert (titles(poll), poll.bad) == (["2:b"], 1)
    own = b"<!DOCTYPE rss [<!ENTITY nbsp 'own'>]>" + rss("1:&nbsp;")
    path.write_bytes(own)
    (poll,) = await polled(FeedPoller([str(path)]))
    assert titles(poll) == ["1:own"]


@on_loop
async def test_other_xml_with_entries_and_an_identity(tmp_path: Path) -> None:
    """Only news could be polled."""
    path = tmp_path / "g.xml"
    path.write_bytes(b"<g><p id='1'>a</p><p id='2'>b</p></g>")
    (poll,) = await polled(FeedPoller([str(path)]))
    assert "which is no feed's" in str(poll.error)
    poller = FeedPoller([str(path)], ReadOptions(entries="p"), identity="id")
    assert [counts(each) for each in await polled(poller)] == [(2, 0, 0, 0)]
    path.write_bytes(b"<g><p id='1'>A</p><p id='2'>b</p></g>")
    assert [counts(each) for each in await polled(poller)] == [(0, 1, 1, 0)]


@on_loop
async def test_it_polls_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later entries would be missed."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        path.write_bytes(rss(f"{len(slept)}:x"))

    monkeypatch.setattr("contrada.integrations.feeds.feed_poller.asyncio.sleep", sleep)
    path = tmp_path / "feed.xml"
    path.write_bytes(rss("0:x"))
    polls = FeedPoller([str(path)]).polls(60)
    assert [titles(await anext(polls)) for _ in range(3)] == [["0:x"], ["1:x"], ["2:x"]]
    await polls.aclose()
    assert all(59 < each <= 60 for each in slept)
    with pytest.raises(ServiceError, match="every_s"):
        await anext(FeedPoller([str(path)]).polls(0))


def test_passwords_are_not_shown() -> None:
    """They would be in logs and files."""
    source = "https://me:secret@x.example/f?a@b"  # pragma: allowlist secret
    assert shown_source(source) == "https://x.example/f?a@b"
    assert shown_source("feeds/me@x.xml") == "feeds/me@x.xml"


@on_loop
async def test_an_abandoned_poll_leaves_no_fetch(tmp_path: Path) -> None:
    """A slow server would hold a connection of a client that is closed."""
    (tmp_path / "a.xml").write_bytes(rss("1:x"))
    is_asked, is_over = threading.Event(), threading.Event()

    def answer(request: BaseHTTPRequestHandler) -> None:
        is_asked.set()
        is_over.wait()
        answering(request, rss("2:x"))

    with website({"/": answer}) as address:
        before = asyncio.all_tasks()
        poller = FeedPoller([str(tmp_path / "a.xml"), f"{address}/"])
        async with aclosing(poller.polls()) as polls:
            assert titles(await anext(polls)) == ["1:x"]
            assert len(asyncio.all_tasks() - before) == 1
            await asyncio.to_thread(is_asked.wait)
        assert asyncio.all_tasks() == before
        is_over.set()


@pytest.mark.parametrize(
    "headers", [{"ETag": '"\xe4"'}, {"Retry_After": "Mon, 01 Jan 2026 00:00:00 +" + "9" * 20}]
)
@on_loop
async def test_odd_headers_end_no_polling(headers: dict[str, str]) -> None:
    """One server with an odd header would end the polling of all feeds."""
    status = 503 if "Retry_After" in headers else 200
    with website({"/a": page(rss("1:a"), status, **headers), "/b": page(rss("2:b"))}) as address:
        poller = FeedPoller([f"{address}/a", f"{address}/b"])
        for unchanged in (0, 1):
            odd, good = await polled(poller)
            assert (odd.error is None) == (status == 200)
            assert (odd.unchanged, good.unchanged) == (unchanged if status == 200 else 0, unchanged)


@on_loop
async def test_a_name_that_is_none_ends_no_polling() -> None:
    """A redirect to an invalid international name would end the polling of all feeds."""
    (poll,) = await polled(FeedPoller(["http://xn--a/"]))
    assert "cannot be read" in str(poll.error)


@on_loop
async def test_cookies_are_not_kept() -> None:
    """A server could make each request larger than the one before."""
    sent: list[str | None] = []

    def answer(request: BaseHTTPRequestHandler) -> None:
        sent.append(request.headers["Cookie"])
        answering(request, rss("1:a"), Set_Cookie=f"n{len(sent)}=x")

    with website({"/": answer}) as address:
        async with Fetcher() as fetcher:
            for _ in range(2):
                await fetcher.fetch(f"{address}/")
    assert sent == [None, None]


@on_loop
async def test_many_feeds_at_once_keep_their_order(tmp_path: Path) -> None:
    """A feed would be left out, or read twice."""
    paths = [tmp_path / f"{number}.xml" for number in range(20)]
    for number, path in enumerate(paths):
        path.write_bytes(rss(f"{number}:x").replace(b"T<", f"T{number}<".encode()))
    found = await polled(FeedPoller(map(str, paths)))
    assert [titles(each) for each in found] == [[f"{number}:x"] for number in range(20)]
    assert [each.source for each in found] == list(map(str, paths))
