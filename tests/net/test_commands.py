"""`contrada serve`, `pub` and `sub` together, as processes."""

import json
import math
import os
import pty
import re
import signal
import socket
import subprocess
import threading
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

import contrada as ct
from contrada.connections import connect_sync
from contrada.net.broker.broker import BrokerStatistics
from tests.commands import here
from tests.integrations.files.event_log_file import event_log, windows_event
from tests.net.conftest import CONTRADA
from tests.net.processes import WAIT_S, contrada, serving


def is_subscribed(address: str) -> bool:
    """Whether a broker has a subscription."""
    counts = json.loads(here("stats", address, "--json").stdout)
    return bool(counts["subscriptions"])


def subscriber(*arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*CONTRADA, "sub", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def publish_until_seen(address: str, process: "subprocess.Popen[str]") -> None:
    """Publish a first notification again and again until the subscriber has printed it."""
    assert process.stdout is not None
    line: list[str] = []
    stdout = process.stdout
    reader = threading.Thread(target=lambda: line.append(stdout.readline()))
    reader.start()
    for _ in range(400):
        here("pub", "--to", address, "begin=true", "desk=1")
        reader.join(0.05)
        if line:
            return
    raise AssertionError("the subscriber printed nothing")


def test_rules_are_subscribed(broker_address: str, tmp_path: Path) -> None:
    """Rules could only be matched against files."""
    rule = "title: Odd logon\nid: 7\nlevel: high\ndetection: {s: {desk: 1}, condition: s}\n"
    (tmp_path / "a.yml").write_text(rule)
    rules = ("--from", "sigma", str(tmp_path))
    process = subscriber(*rules, "--to", broker_address, "--json")
    publish_until_seen(broker_address, process)
    here("pub", "--to", broker_address, "desk=1", "user=root")
    assert process.stdout is not None
    alerts = map(json.loads, process.stdout)
    alert = next(each for each in alerts if "user" in each["attributes"])
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=WAIT_S)
    assert (alert["subscription"], alert["rule"]["title"]) == ("7", "Odd logon")


def test_lines_of_a_log_are_published(broker_address: str, tmp_path: Path) -> None:
    """Logs would have to be converted by another program before rules could see them."""
    (tmp_path / "a.log").write_text("Feb  5 17:32:18 box sshd[9]: root in\n1 -> 2\n")
    process = subscriber("desk = 1 or host any or n any", "--to", broker_address, "--json")
    publish_until_seen(broker_address, process)
    to = ("pub", "--to", broker_address)
    first = here(*to, "--log", "syslog", str(tmp_path / "a.log"))
    assert (first.returncode, first.stdout) == (2, "published 1\n")
    assert f"{tmp_path / 'a.log'}:2:1: found '1 -> 2', expected a line of syslog" in first.stderr
    lines = (*to, "--log", "lines", str(tmp_path / "a.log"))
    second = here(*lines, "--pattern", r"(?P<n>\d+) ?(->|17|box)")
    assert (second.returncode, second.stdout) == (0, "published 2\n")
    assert here(*lines).returncode == here(*to, "--pattern", "x", "a=1").returncode == 2
    assert process.stdout is not None
    found: list[dict[str, object]] = []
    while len(found) < 3:
        line = json.loads(process.stdout.readline())
        found += [] if "desk" in line else [line]
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=WAIT_S)
    assert found[0]["app"] == "sshd"
    assert [each["n"] for each in found[1:]] == [5, 1]


def test_publications_are_printed(broker_address: str, tmp_path: Path) -> None:
    """The commands would not do as the README shows."""
    quotes = tmp_path / "quotes.jsonl"
    nested = '{"desk": 1, "by": {"name": "x"}, "legs": [{"to": "JFK"}]}'
    quotes.write_text(
        '{"desk": 1, "price": 61.5, "tags": ["a", "b"]}\n{"desk": 2}\n' + nested, "utf-8"
    )
    process = subscriber("desk = 1", "--to", broker_address, "--json", "--timeout", "2")
    publish_until_seen(broker_address, process)
    published = here("pub", "--to", broker_address, "--json", str(quotes))
    assert (published.returncode, published.stdout) == (0, "published 3\n")
    here("pub", "--to", broker_address, "desk=1", "symbol=DIS", "at=@2026-11-20T09:30:00Z")
    out, errors = process.communicate(timeout=WAIT_S)
    assert (process.returncode, errors) == (0, "")
    got = [json.loads(line) for line in out.splitlines()]
    assert [each for each in got if "begin" not in each] == [
        {"desk": 1, "price": 61.5, "tags": ["a", "b"]},
        json.loads(nested),
        {"desk": 1, "symbol": "DIS", "at": {"$time": "2026-11-20T09:30:00Z"}},
    ]


@pytest.mark.slow
def test_pub_sets_lifetime_and_priority(broker_address: str) -> None:
    """A publisher in a shell could set neither, or a typing error would be accepted."""
    with connect_sync(broker_address) as service, service.subscribe("desk = 7") as events:
        contrada("pub", "--to", broker_address, "--ttl", "60", "--priority", "9", "desk=7")
        options = "--json", "-", "--ttl", "30.5", "--priority", "0"
        contrada("pub", "--to", broker_address, *options, text='{"desk": 7}\n')
        envelopes = [events.next(20).envelope for _ in range(2)]
    assert [(each.ttl_us, each.priority) for each in envelopes] == [
        (60_000_000, 9),
        (30_500_000, 0),
    ]
    for option, value in (("--ttl", "0"), ("--priority", "10")):
        refused = contrada("pub", "--to", broker_address, option, value, "desk=7")
        assert (refused.returncode, option in refused.stderr) == (2, True)


@pytest.mark.slow
def test_pub_publishes_with_a_delivery_guarantee(tmp_path: Path) -> None:
    """A script could fill no queue without loss, or a typing error would count as best effort."""
    with serving("--port", "0", "--store", str(tmp_path / "events.db")) as (_, address):
        with connect_sync(address) as service:
            with service.subscribe("n any", durable="desk"):
                pass
            options = ("pub", "--to", address, "--delivery", "certified fifo")
            assert contrada(*options, "n=1", "--ttl", "600").returncode == 0
            assert contrada(*options, "--json", "-", text='{"n": 2}\n{"n": 3}\n').returncode == 0
            records = service.queues.peek("desk").records
            envelopes = [each.item.envelope for each in records]
        assert [each["n"] for each in records] == [1, 2, 3]
        assert {each.delivery for each in envelopes} == {"certified fifo"}
        assert [each.ttl_us for each in envelopes] == [600_000_000, None, None]
        refused = contrada("pub", "--to", address, "--delivery", "certain", "n=4")
        assert (refused.returncode, "expected best-effort, or reliable" in refused.stderr) == (
            2,
            True,
        )


@pytest.mark.parametrize(
    "command",
    [("sub", "desk = 77", "--json"), ("adv", "desk any"), ("xml", "receive", "desk = 77")],
    ids=" ".join,
)
def test_a_command_that_runs_until_stopped_reconnects(command: tuple[str, ...]) -> None:
    """Everything after a restart of the broker would be missed, or a supervisor be needed."""
    with serving("--port", "0") as (first, address):
        process = subprocess.Popen(
            [*CONTRADA, *command, "--to", address],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        with process:
            try:
                if command[0] == "adv":
                    assert process.stdout.readline().startswith("+ ")
                while command[0] != "adv" and not is_subscribed(address):
                    pass
                first.kill()
                assert process.stderr.readline().startswith("not connected, trying again: ")
                with serving("--port", address.rpartition(":")[2]):
                    while (line := process.stderr.readline()).startswith("not connected"):
                        pass  # With each other reason.
                    assert line.startswith("connected again to ")
                    if command[0] == "sub":
                        here("pub", "--to", address, "desk=77")
                        assert json.loads(process.stdout.readline())["desk"] == 77
            finally:
                process.kill()


def test_lines_of_a_pipe_are_published_after_a_restart() -> None:
    """The lines of `tail -f` would end at the next restart of the broker."""
    with serving("--port", "0") as (first, address):
        process = subprocess.Popen(
            [*CONTRADA, "pub", "--json", "-", "--to", address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        assert process.stderr is not None
        with process, connect_sync(address) as service, service.subscribe("n any") as events:
            try:
                print('{"n": 1}', file=process.stdin, flush=True)
                assert events.next(WAIT_S)["n"] == 1
                first.kill()
                lines = [process.stderr.readline()]
                while not lines[-1].startswith("not connected, trying again: "):
                    lines.append(process.stderr.readline())
                print('{"n": 2}', file=process.stdin, flush=True)
                with serving("--port", address.rpartition(":")[2]):
                    while not lines[-1].startswith("connected again to "):
                        lines.append(process.stderr.readline())
                        assert lines[-1], lines
                    print('{"n": 3}', file=process.stdin, flush=True)
                    out, errors = process.communicate(timeout=WAIT_S)
                # The first may have come without an answer.
                unknown = "up to 1 may be lost with the connection\n" in lines
                count = 2 if unknown else 3
                assert (process.returncode, out, errors) == (0, f"published {count}\n", "")
            finally:
                process.kill()


@pytest.mark.slow
def test_a_durable_subscription_continues_at_its_position(broker_address: str) -> None:
    """Notifications without a reader would be lost, doubled, or kept for ever."""
    sub = partial(contrada, "sub", "--to", broker_address, "--durable", "shell", "--json")
    begun = sub("desk = 77", "--seconds", "0.01")
    assert (begun.returncode, begun.stdout, begun.stderr) == (0, "", "")
    for number in range(3):
        contrada("pub", "--to", broker_address, "desk=77", f"n={number}")
    found = [
        sub("--count", "2", "--timeout", "10").stdout,
        sub("--count", "1", "--envelope").stdout,
    ]
    last = json.loads(found[1])
    assert (last["@position"], last["@attempt"]) == (3, 1)
    assert [json.loads(line)["n"] for line in "".join(found).splitlines()] == [0, 1, 2]
    assert sub("--seconds", "0.5").stdout == ""
    assert sub("--end").returncode == 0
    gone = sub()
    assert gone.returncode != 0
    assert "give its filters to create it" in gone.stderr
    for wrong in (("sub", "--end"), ("sub",)):
        assert contrada(*wrong).returncode == 2


@pytest.mark.slow
def test_printed_notifications_are_republished_unchanged(broker_address: str) -> None:
    """A pipe from one broker to another would lose times, bytes, NaN, marks or bodies."""
    sent = ct.Notification.with_marks(
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


@pytest.mark.slow
def test_count_ends_a_subscription(broker_address: str) -> None:
    """A script would wait for ever."""
    process = subscriber("desk = 1 and begin = true", "--to", broker_address, "--count", "1")
    publish_until_seen(broker_address, process)
    out, errors = process.communicate(timeout=WAIT_S)
    assert (process.returncode, out, errors) == (0, "", "")


@pytest.mark.slow
def test_seconds_end_a_subscription(broker_address: str) -> None:
    """A script would wait for ever, or `--count` would not end it before that."""
    options = ("--to", broker_address, "--seconds")
    process = subscriber("desk = 1 and begin = true", *options, "3")
    publish_until_seen(broker_address, process)
    _, errors = process.communicate(timeout=WAIT_S)
    assert (process.returncode, errors) == (0, "")
    process = subscriber("desk = 1 and begin = true", *options, "600", "--count", "1")
    publish_until_seen(broker_address, process)
    assert process.communicate(timeout=WAIT_S) == ("", "")
    assert process.returncode == 0
    refused = contrada("sub", "everything", *options, "nan")
    assert refused.returncode == 2
    assert "seconds = nan: expected seconds" in refused.stderr


ROWS = 'desk,at,text,price\r\n9,2013-01-01,"two\r\nlines",NA\r\n9,2013-01-02,"a,b",2.5\r\n'


@pytest.mark.quick_first
@pytest.mark.parametrize("way", ["file", "standard input"])
def test_rows_of_csv_are_published(broker_address: str, tmp_path: Path, way: str) -> None:
    """A table would have to be turned into JSON first, or cells with line breaks be lost."""
    path = tmp_path / "rows.csv"
    path.write_text(ROWS, "utf-8", newline="")
    source, text = (str(path), "") if way == "file" else ("-", ROWS)
    options = ("--types", "at=text", "--absent", "NA", "--ttl", "60")
    with connect_sync(broker_address) as service, service.subscribe("desk = 9") as events:
        run = here("pub", "--to", broker_address, "--csv", source, *options, text=text)
        assert (run.returncode, run.stdout, run.stderr) == (0, "published 2\n", "")
        found = [events.next(WAIT_S) for _ in range(2)]
    assert [dict(each) for each in found] == [
        {"desk": 9, "at": "2013-01-01", "text": "two\nlines"},
        {"desk": 9, "at": "2013-01-02", "text": "a,b", "price": 2.5},
    ]
    assert {each.envelope.ttl_us for each in found} == {60_000_000}


@pytest.mark.quick_first
@pytest.mark.parametrize(
    ("text", "count", "said"),
    [
        ("", 0, "standard input:1:1: found an empty file, expected a line that names the columns"),
        ("a,b\n1,2\n3\n5,6\n", 1, "standard input:3:2: found 1 cells, expected 2"),
        ("a,b\n[1\n", 0, "2:3: found 1 cells, expected 2\n"),
        ("a\tb\n1\t2\n", 0, "--delimiter $'\\t' parts cells by that"),
    ],
)
def test_a_bad_row_ends_publishing_with_its_place(
    broker_address: str, text: str, count: int, said: str
) -> None:
    """A person would have to look for the bad row, or rows behind it would be published."""
    run = here("pub", "--to", broker_address, "--csv", "-", text=text)
    assert (run.returncode, run.stdout) == (2, f"published {count}\n")
    assert said in run.stderr
    both = here("pub", "--to", broker_address, "--csv", "-", "--json", "-")
    assert both.returncode == 2
    assert "one of them" in both.stderr


@pytest.mark.slow
def test_a_bar_is_shown_on_a_terminal_only(broker_address: str, tmp_path: Path) -> None:
    """A person would not see how far it is, or a log would be full of bars."""
    path = tmp_path / "many.jsonl"
    path.write_text('{"shown": 1}\n' * 1_000, "utf-8")
    command = ("pub", "--to", broker_address, "--json", str(path))
    outer, inner = pty.openpty()
    run = subprocess.run(
        [*CONTRADA, *command], stdout=subprocess.PIPE, stderr=inner, text=True, check=False
    )
    os.close(inner)
    shown = os.read(outer, 2**16).decode()
    os.close(outer)
    assert (run.returncode, run.stdout) == (0, "published 1000\n")
    assert "1,000 published" in shown
    assert "/13.0" in shown.replace("\x1b", "")  # of 13 kB in all
    assert contrada(*command).stderr == ""


@pytest.mark.slow
def test_ctrl_c_ends_a_subscription_without_a_word(broker_address: str) -> None:
    """A user who ends a subscription would see a traceback."""
    process = subscriber("desk = 1 and begin = true", "--to", broker_address)
    publish_until_seen(broker_address, process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=WAIT_S)
    assert (process.returncode, errors) == (130, "")


@pytest.mark.slow
def test_losses_are_reported_also_at_ctrl_c(broker_address: str) -> None:
    """A user would take the printed notifications for all."""
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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_broker_ends_in_order(number: signal.Signals, status: int, tmp_path: Path) -> None:
    """Stopping a broker would look like a crash, to people and to its clients."""
    with subprocess.Popen(
        [*CONTRADA, "serve", "--port", "0"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as broker:
        assert broker.stdout is not None
        address = broker.stdout.readline().strip()
        with subscriber("desk = 1", "--to", address) as process:
            publish_until_seen(address, process)
            broker.send_signal(number)
            assert process.stderr is not None
            assert process.stderr.readline() == "not connected, trying again: the broker stops\n"
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=WAIT_S)
            assert process.returncode == 130
            assert "Traceback" not in errors
        _, errors = broker.communicate(timeout=WAIT_S)
        assert broker.returncode == status
        assert "Traceback" not in errors
        assert "notifications published" in errors


def test_invalid_timeouts_are_refused(broker_address: str) -> None:
    """A command would wait for ever."""
    refused = here("sub", "everything", "--to", broker_address, "--timeout", "nan")
    assert refused.returncode == 2
    assert "timeout_s = nan: expected seconds" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_nobody_listens() -> None:
    """A user would not learn the missing part."""
    run = here("pub", "--to", "contrada://127.0.0.1:1", "a=1")
    assert run.returncode == 1
    assert run.stderr.startswith("contrada: error: contrada://127.0.0.1:1: connection refused")


def test_a_bad_line_ends_publishing_with_its_place(broker_address: str) -> None:
    """A person would have to look for the bad line."""
    run = here("pub", "--to", broker_address, "--json", "-", text='{"a": 1}\n{"a": \n')
    assert (run.returncode, run.stdout) == (2, "published 1\n")
    assert run.stderr.startswith("contrada: error: standard input:2:")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ('[{"a": 1}]', "; a file has one object per line"),
        ('[\n{"a": 1}\n]', "; a file has one object per line"),
        ('{"a": 1, "@id": "x", "@time": null}', ", --drop @id,@publisher,@time leaves them out"),
        ('{"a": "x", "": 1}', "; --rename =NAME gives it one"),
        ('{\n"a": 1}', "; each line is one object: `jq -c .` writes them so"),
    ],
)
def test_lines_of_another_shape_get_a_hint(broker_address: str, text: str, hint: str) -> None:
    """A user would see the error without a remedy."""
    run = here("pub", "--to", broker_address, "--json", "-", text=text)
    assert (run.returncode, run.stdout) == (2, "published 0\n")
    assert run.stderr.endswith(f"{hint}\n")


def test_attributes_are_renamed_and_dropped(broker_address: str) -> None:
    """Lines of log shippers could not be published."""
    with connect_sync(broker_address) as service, service.subscribe("shipped = 1") as events:
        text = '{"shipped": 1, "@timestamp": "2013-01-01T00:00:00", "@version": "1"}\n'
        options = ("--rename", "@timestamp=at", "--drop", "@version", "--types", "at=time")
        run = here(
            "pub", "--to", broker_address, "--json", "-", *options, "--zone", "UTC", text=text
        )
        assert (run.returncode, run.stdout, run.stderr) == (0, "published 1\n", "")
        found = dict(events.next(WAIT_S))
    assert found == {"shipped": 1, "at": datetime(2013, 1, 1, tzinfo=UTC)}


def test_names_in_options_that_no_record_has_are_reported(
    broker_address: str, tmp_path: Path
) -> None:
    """A misspelled name would leave a type or a name as it is, without a word."""
    rows = tmp_path / "a.csv"
    rows.write_text("user,password\nroot,secret\n")
    options = ("--types", "passwrod=text,uid=number")
    run = here("pub", "--to", broker_address, "--csv", str(rows), *options)
    assert (run.returncode, run.stdout) == (0, "published 1\n")
    assert run.stderr.splitlines() == [
        "no record has 'passwrod', which an option names, there is 'password'",
        "no record has 'uid', which an option names",
    ]
    text = '{"a": {"id": 1, "of": 2}}\n{"b": 1}\n'
    options = ("--rename", "b=c,d=e")
    run = here("pub", "--to", broker_address, "--json", "-", *options, text=text)
    assert run.stderr.splitlines() == ["no record has 'd', which an option renames to 'e'"]
    (tmp_path / "a.evtx").write_bytes(event_log(windows_event(1, [("Image", "a.exe")])))
    for source in (("--csv", str(rows)), ("--log", "evtx", str(tmp_path / "a.evtx"))):
        run = here("pub", "--to", broker_address, *source, "--drop", "Imag,user,EventID")
        assert (run.returncode, run.stdout[:9]) == (0, "published")
        assert run.stderr.count("no record has 'Imag', which an option names") == 1
        is_log = source[0] == "--log"
        assert ("'user'" in run.stderr, "'EventID'" in run.stderr) == (is_log, not is_log)


@pytest.mark.slow
def test_a_broker_reports_its_statistics(broker_address: str) -> None:
    """An operator would learn of losses and refusals only at the end."""
    contrada("pub", "--to", broker_address, "a=1")
    run = contrada("stats", broker_address, "--json")
    assert (run.returncode, run.stderr) == (0, "")
    counts = json.loads(run.stdout)
    assert set(counts) == set(BrokerStatistics.__dataclass_fields__)
    assert counts["published"] >= 1
    assert counts["connections"] >= 1
    run = contrada("stats", broker_address)
    assert re.search(r"│ published +│ \d", run.stdout)
    assert re.search(r"│ began +│ 2\d\d\d-\d\d-\d\dT", run.stdout)
    run = contrada("stats", "contrada://127.0.0.1:1")
    assert run.returncode == 1
    assert "connection refused" in run.stderr


@pytest.mark.slow
@pytest.mark.parametrize("options", [["-v"], ["-vv", "--json"]])
def test_a_broker_logs_connections_and_refusals(options: list[str], tmp_path: Path) -> None:
    """An operator could not find out why a client was ended."""
    command = [*CONTRADA, "serve", "--port", "0", *options]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=tmp_path, text=True, **pipes) as broker:  # type: ignore[call-overload]
        address = broker.stdout.readline().strip()
        port = int(address.rpartition(":")[2])
        with connect_sync(address) as service, service.subscribe("logged = 1"):
            pass
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            while stranger.recv(1024):
                pass
        broker.send_signal(signal.SIGTERM)
        _, errors = broker.communicate(timeout=WAIT_S)
    *lines, last = errors.splitlines()
    if "--json" in options:
        lines = [f"{each['level']} {each['message']}" for each in map(json.loads, lines)]
        assert json.loads(last)["statistics"]["connections_total"] == 2
    text = "\n".join(lines).lower()
    for said in (f"info listening at {address}", "info client", "connected", "has left"):
        assert said in text
    assert "is ended" in text
    assert "begin no contrada frame" in text
    assert ("subscribed to logged = 1" in text) == ("-vv" in options)


@pytest.mark.slow
def test_the_envelope_is_shown_on_request(broker_address: str) -> None:
    """A user could not see the publisher and the time."""
    command = ("--to", broker_address, "--count", "1", "--envelope")
    plain = subscriber("desk = 1 and begin = true", *command)
    with_json = subscriber("desk = 1 and begin = true", *command, "--json")
    shown = []
    for process in (plain, with_json):
        while process.poll() is None:
            contrada("pub", "--to", broker_address, "--publisher", "me", "begin=true", "desk=1")
        shown.append(process.communicate(timeout=WAIT_S)[0])
    assert re.match(r'\d{4}-\S+Z  @id="\S+"  @publisher="me"  ', shown[0])
    found = json.loads(shown[1])
    assert (found["@publisher"], found["desk"]) == ("me", 1)
    assert found["@id"]
    assert found["@time"].endswith("Z")
