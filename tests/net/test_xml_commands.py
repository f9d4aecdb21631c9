"""`contrada xml` and `contrada feed` over a real broker, as processes."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from contrada.cli import main
from tests.integrations.feeds.web import answering, website
from tests.net.processes import WAIT_S, serving
from tests.own_operators import CONTRADA

pytestmark = pytest.mark.slow

STORIES = (
    "<b><s><t>one</t><n>1</n></s><!-- c --><s><t>two &amp; a half</t></s><s><t>three</t></s></b>"
)
CANONICAL = STORIES.replace("<!-- c -->", "")


@contextmanager
def working(*arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """A command at work; it is killed at the end, where it has not ended."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*CONTRADA, *arguments], **pipes) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.kill()


def first_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    line: str = process.stdout.readline()
    return line.rstrip("\n")


def run(*arguments: str) -> Result:
    """Returns the output of a command, run in this process."""
    found = CliRunner().invoke(main, arguments)
    assert found.exit_code == 0, found.stderr
    return found


def sent_until(receiver: "subprocess.Popen[str]", *arguments: str) -> None:
    """Sends until the receiver has ended, after its first delivery."""
    for _ in range(40):
        run("xml", "send", *arguments)
        try:
            receiver.wait(0.25)
        except subprocess.TimeoutExpired:
            continue
        return
    raise AssertionError("the receiver got nothing")


def test_documents_are_sent_and_received(tmp_path: Path) -> None:
    """The paper's demonstration, from a document to a receiver that knows its names."""
    path, store = tmp_path / "s.xml", tmp_path / "names.db"
    path.write_text(STORIES)
    with serving("--port", "0", "--store", "memory:") as (_, address):
        to = ("--to", address)
        with working("xml", "daemon", *to, "--store", str(store), "--name", "north") as daemon:
            assert first_line(daemon) == "north"
            sent = run("xml", "send", str(path), "--strategy", "daemon", *to)
            assert sent.stdout == "published 1, told 2 names\n"
            assert "repeated: b.s, at most 3 in one place" in sent.stderr

            with working(
                "xml", "receive", "`b.s.t` = 'one'", *to, "--count", "1", "--names", "--json"
            ) as receiver:
                sent_until(receiver, str(path), "--strategy", "daemon", *to)
                found = json.loads(first_line(receiver))
                assert found == {"b.s.t": ["one", "three", "two & a half"], "b.s.n": 1}
            with working(
                "xml", "receive", "`b.s.t` = 'one'", *to, "--count", "1", "--document"
            ) as receiver:
                sent_until(receiver, str(path), "--strategy", "daemon", *to)
                assert first_line(receiver) == CANONICAL
            daemon.send_signal(signal.SIGINT)
            _, errors = daemon.communicate(timeout=WAIT_S)
            assert daemon.returncode == 130
            assert errors.startswith("2 names of 1 kinds, ")
        with working("xml", "daemon", *to, "--store", str(store)) as daemon:
            assert first_line(daemon)
            found = run("xml", "names", *to, "--generated", "b.s.t~3", "--json")
            record = json.loads(found.stdout)
            assert (record["original"], record["position"]) == ("b.s.t", "b.s[3].t")
            table = run("xml", "names", *to, "--original", "b.s.t", "--kind", "b").stdout
            assert len(table.splitlines()) == 3


def test_patterns_are_subscribed(tmp_path: Path) -> None:
    """A subscriber to any story's title would have to name all numbers."""
    path = tmp_path / "s.xml"
    path.write_text(STORIES)
    with serving("--port", "0", "--store", "memory:") as (_, address):
        to = ("--to", address)
        asked = "`b.s.*.t` = 'three' and `b.s.<0-0>.n` = 1"
        with (
            working("xml", "daemon", *to) as daemon,
            website({"/s.xml": lambda it: answering(it, STORIES.encode())}) as web,
        ):
            assert first_line(daemon)
            with working("xml", "receive", asked, *to, "--patterns", "--count", "1") as receiver:
                sent_until(receiver, f"{web}/s.xml", "--strategy", "index", "--names", *to)
                assert 'b.s.2.t="three"' in first_line(receiver)
        with working(
            "xml",
            "receive",
            asked,
            *to,
            "--patterns",
            "--known",
            "b.s.2.t",
            "--known",
            "b.s.0.n",
            "--count",
            "1",
        ) as receiver:
            sent_until(receiver, str(path), "--strategy", "index", *to)
            assert 'b.s.2.t="three"' in first_line(receiver)


def test_feeds_are_published(tmp_path: Path) -> None:
    """A feed could be printed only."""
    page = [b"<rss><channel><item><guid>1</guid></item></channel></rss>"]
    with (
        serving("--port", "0", "--store", "memory:") as (_, address),
        website({"/f": lambda it: answering(it, page[0])}) as web,
        working("sub", "everything", "--to", address, "--json", "--count", "2") as subscriber,
        working(
            "feed",
            f"{web}/f",
            "--to",
            address,
            "--every",
            "0.2",
            "--state",
            str(tmp_path / "state"),
        ) as feed,
    ):
        assert feed.stderr is not None
        assert feed.stderr.readline() == f"{web}/f: 1 new, 0 changed, 0 unchanged, 0 bad\n"
        number = 1
        while subscriber.poll() is None:  # The subscription may be later than the first ones.
            number += 1
            page[0] = page[0].replace(b"<item>", b"<item><guid>%d</guid></item><item>" % number, 1)
            line = feed.stderr.readline()
            assert ": 0 new" in line or ": 1 new" in line or ": 2 new" in line, line
        found = [json.loads(line)["rss.channel.item.guid"] for line in subscriber.stdout or ()]
        assert len(found) == 2
        assert found[0] < found[1]
        feed.send_signal(signal.SIGINT)
        _, errors = feed.communicate(timeout=WAIT_S)
        assert feed.returncode == 130
        assert "polls: " in errors
