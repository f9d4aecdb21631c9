"""`contrada serve`, `pub` and `sub` together, as processes."""

import json
import math
import re
import signal
import subprocess
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

import contrada as ct
from contrada.net.connecting import connect_sync
from tests.net.conftest import CONTRADA

WAIT_S = 20


def contrada(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CONTRADA, *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )


def subscriber(*arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*CONTRADA, "sub", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def publish_until_seen(address: str, process: "subprocess.Popen[str]") -> None:
    """Publish a first notification again and again until the subscriber has printed it."""
    assert process.stdout is not None
    line: list[str] = []
    stdout = process.stdout
    reader = threading.Thread(target=lambda: line.append(stdout.readline()))
    reader.start()
    for _ in range(20):
        contrada("pub", "--to", address, "begin=true", "desk=1")
        reader.join(0.05)
        if line:
            return
    raise AssertionError("the subscriber printed nothing")


def test_what_is_published_is_printed(broker_address: str, tmp_path: Path) -> None:
    """The commands would not do what the README shows."""
    quotes = tmp_path / "quotes.jsonl"
    nested = '{"desk": 1, "by": {"name": "x"}, "legs": [{"to": "JFK"}]}'
    quotes.write_text(
        '{"desk": 1, "price": 61.5, "tags": ["a", "b"]}\n{"desk": 2}\n' + nested, "utf-8"
    )
    process = subscriber("desk = 1", "--to", broker_address, "--json", "--timeout", "4")
    publish_until_seen(broker_address, process)
    published = contrada("pub", "--to", broker_address, "--json", str(quotes))
    assert (published.returncode, published.stdout) == (0, "published 3\n")
    contrada("pub", "--to", broker_address, "desk=1", "symbol=DIS", "at=@2026-11-20T09:30:00Z")
    out, errors = process.communicate(timeout=WAIT_S)
    assert (process.returncode, errors) == (0, "")
    got = [json.loads(line) for line in out.splitlines()]
    assert [each for each in got if "begin" not in each] == [
        {"desk": 1, "price": 61.5, "tags": ["a", "b"]},
        json.loads(nested),
        {"desk": 1, "symbol": "DIS", "at": {"$time": "2026-11-20T09:30:00Z"}},
    ]


def test_what_was_printed_is_published_as_it_was(broker_address: str) -> None:
    """A pipe from one broker to another would lose times, bytes, NaN, marks or bodies."""
    sent = ct.Notification.marked(
        {"desk": 7, "at": datetime(2026, 1, 2, tzinfo=UTC), "n": [math.nan, b"\xff"]},
        ["Quote"],
        body=b"\x00",
        content_type="x",
    )
    with connect_sync(broker_address) as service, service.subscribe("desk = 7") as events:
        process = subscriber("desk = 7", "--to", broker_address, "--json", "--count", "1")
        while process.poll() is None:
            service.publish(sent)
            events.next()
        line, _ = process.communicate()
        contrada("pub", "--to", broker_address, "--json", "-", text=line)
        second = events.next()
    assert second.with_envelope(sent.envelope) == sent
    assert list(second) == list(sent)


def test_count_ends_a_subscription(broker_address: str) -> None:
    """A script would wait for ever."""
    process = subscriber("desk = 1 and begin = true", "--to", broker_address, "--count", "1")
    publish_until_seen(broker_address, process)
    out, errors = process.communicate(timeout=WAIT_S)
    assert (process.returncode, out, errors) == (0, "", "")


def test_ctrl_c_ends_a_subscription_without_a_word(broker_address: str) -> None:
    """A person who has seen enough would see a traceback."""
    process = subscriber("desk = 1 and begin = true", "--to", broker_address)
    publish_until_seen(broker_address, process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=WAIT_S)
    assert (process.returncode, errors) == (130, "")


def test_losses_are_told_also_at_ctrl_c(broker_address: str) -> None:
    """A person would take what was printed for all that there was."""
    process = subscriber("desk = 1", "--to", broker_address)
    publish_until_seen(broker_address, process)
    process.send_signal(signal.SIGSTOP)
    with connect_sync(broker_address, publish_wait_s=0) as service:
        # More than the credit of the subscriber and its queue at the broker hold.
        service.publish_batch({"desk": 1, "text": "x" * 50_000} for _ in range(1_600))
    process.send_signal(signal.SIGCONT)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == 130
    assert re.fullmatch(r"\d+ dropped: queue full\n", errors)


def test_a_reader_that_leaves_is_no_error(broker_address: str) -> None:
    """`contrada sub … | head -1` would end in a traceback."""
    process = subscriber("desk = 1 and begin = true", "--to", broker_address)
    publish_until_seen(broker_address, process)
    assert process.stdout is not None
    process.stdout.close()
    for _ in range(20):
        contrada("pub", "--to", broker_address, "desk=1", "begin=true")
        if process.poll() is not None:
            break
    assert process.wait(WAIT_S) == 0
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_broker_ends_in_order(number: signal.Signals, status: int) -> None:
    """Stopping a broker would look like a crash, to people and to its clients."""
    with subprocess.Popen(
        [*CONTRADA, "serve", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as broker:
        assert broker.stdout is not None
        address = broker.stdout.readline().strip()
        with subscriber("desk = 1", "--to", address) as process:
            publish_until_seen(address, process)
            broker.send_signal(number)
            _, errors = process.communicate(timeout=WAIT_S)
            assert process.returncode == 1
            assert errors == f"contrada: error: {address}: the broker stops\n"
        _, errors = broker.communicate(timeout=WAIT_S)
        assert broker.returncode == status
        assert "Traceback" not in errors
        assert "notifications published" in errors


def test_nobody_listens() -> None:
    """A person would not learn what is missing."""
    run = contrada("pub", "--to", "contrada://127.0.0.1:1", "a=1")
    assert run.returncode == 1
    assert run.stderr.startswith("contrada: error: contrada://127.0.0.1:1: connection refused")


def test_a_bad_line_ends_publishing_with_its_place(broker_address: str) -> None:
    """A person would have to look for the bad line."""
    run = contrada("pub", "--to", broker_address, "--json", "-", text='{"a": 1}\n{"a": \n')
    assert run.returncode == 2
    assert run.stderr.startswith("contrada: error: standard input:2:")
