"""The logs of commands: JSON lines whose fields are documented, without secrets."""

import ast
import json
import logging
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from contrada import Notification, connect_sync
from contrada.cli.log_output import JsonFormatter, TextFormatter
from contrada.errors import StoreError
from tests.net.processes import WAIT_S, serving

REPOSITORY = Path(__file__).resolve().parents[2]

OF_EACH_LINE = {"time", "level", "logger", "event", "message"}


def line_of(text: str, fields: dict[str, object], **more: object) -> dict[str, object]:
    """The line of a log call."""
    record = logging.LogRecord("contrada.x", logging.INFO, "x.py", 1, text, (fields,), None)
    record.__dict__.update(more)
    line: dict[str, object] = json.loads(JsonFormatter().format(record))
    return line


def test_a_line_has_its_event_and_named_fields() -> None:
    """A program would have to parse texts for the user and the reason of a refusal."""
    line = line_of(
        "%(peer)s waits %(wait_s).1f s: %(reason)s",
        {"peer": "a:1", "wait_s": 2.0, "reason": StoreError("full"), "code": "x"},
        created=1_700_000_000.000125,
    )
    assert line == {
        "time": "2023-11-14T22:13:20.000125Z",
        "level": "info",
        "logger": "contrada.x",
        "event": "{peer} waits {wait_s} s: {reason}",
        "message": "a:1 waits 2.0 s: full",
        "peer": "a:1",
        "wait_s": 2.0,
        "reason": "full",
        "code": "x",
    }
    assert line_of("%(reason)r", {"reason": KeyError("a")})["reason"] == "KeyError('a')"


def test_a_client_writes_no_line_of_its_own() -> None:
    """A user could forge lines of others, by a name with a line break, or clear a terminal."""
    fields = {"reason": "x\n2026-01-01 INFO b\x1b[2J\u2028é"}
    record = logging.LogRecord("c", logging.INFO, "x.py", 1, "%(reason)s", (fields,), None)
    text = TextFormatter("%(levelname)s %(message)s").format(record)
    assert text == r"INFO x\n2026-01-01 INFO b\x1b[2J\u2028é"


def test_what_it_stands_on_logs_in_the_same_form() -> None:
    """A reader of JSON lines would meet lines of text, or miss a fault."""
    code = (
        "import logging; from contrada.cli.log_output import log; log(0, as_json=True);"
        "[logging.getLogger(name).error('a %s', 'b') for name in ('asyncio', 'uvicorn.error')]"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in run.stderr.splitlines()]
    assert [(each["logger"], each["message"]) for each in lines] == [
        ("asyncio", "a b"),
        ("uvicorn.error", "a b"),
    ]


def named_in_code() -> Iterator[tuple[str, str]]:
    """Each field name in a logged text, or in the mapping beside it, with its place."""
    for path in (REPOSITORY / "src/contrada").rglob("*.py"):
        text = path.read_text("utf-8")
        for name in re.findall(r"%\((\w+)\)[\d.]*[srdgf]", text):
            yield name, path.name
        for node in ast.walk(ast.parse(text)):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            owner = node.func.value
            if isinstance(owner, ast.Name) and owner.id in {"_LOG", "_log", "logger"}:
                for given in node.args:
                    if isinstance(given, ast.Dict):
                        for key in given.keys:
                            assert isinstance(key, ast.Constant), (path, node.lineno)
                            yield str(key.value), path.name


def test_all_fields_are_told() -> None:
    """A program that reads logs would meet an undocumented field, or two for one thing."""
    page = (REPOSITORY / "docs/operations.md").read_text("utf-8")
    logs = page.partition("## Logs\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^- (`.+?):", logs, re.MULTILINE)
    told = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    used = dict(named_in_code())
    for of_lines_for_people in ("asctime", "levelname", "message"):
        del used[of_lines_for_people]
    assert {name: where for name, where in used.items() if name not in told} == {}
    assert told - used.keys() == OF_EACH_LINE | {"exception", "statistics"}


def test_positional_texts_are_gone() -> None:
    """A line of JSON would have a text and no field."""
    left = [
        (path.name, text)
        for path in (REPOSITORY / "src/contrada").rglob("*.py")
        for text in re.findall(
            r'\b(?:_LOG|_log|logger)\.\w+\(\s*"([^"]*)"', path.read_text("utf-8")
        )
        if re.search(r"%[-\d.]*[srdgf]", text)
    ]
    assert left == []


@pytest.mark.slow
def test_a_broker_logs_json_without_what_is_secret() -> None:
    """A reader of logs could read publications, or act as a client."""
    body, value = b"a body 5d1", "a value 7e2"
    with serving("--port", "0", "--store", "memory:", "-vv", "--json") as (broker, address):
        with connect_sync(address) as service, service.subscribe("desk any") as subscription:
            service.publish(Notification({"desk": value}, body=body))
            assert next(iter(subscription)).body == body
        broker.send_signal(signal.SIGTERM)
        _, errors = broker.communicate(timeout=WAIT_S)
    lines = [json.loads(line) for line in errors.splitlines()]
    assert body.decode() not in errors
    assert value not in errors
    for line in lines:
        assert line.keys() >= OF_EACH_LINE
        assert datetime.fromisoformat(line["time"]).utcoffset() is not None
    asked = next(line for line in lines if "filters" in line)
    assert asked["event"] == "client {peer} subscribed to {filters}"
    assert asked["filters"] == "desk any"
    assert lines[-1]["statistics"]["published"] == 1
