"""Lines of text logs as notifications."""

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.errors import InputError
from contrada.integrations.files import (
    BadRecord,
    Matcher,
    ReadOptions,
    Record,
    format_of,
    read_file,
)
from contrada.integrations.files.log_lines import LOG_FORMATS, log_reader
from contrada.integrations.files.record import record_of
from contrada.model import parse

AT = datetime(2003, 10, 11, 22, 14, 15, 3_000, tzinfo=UTC)
STRUCTURED = (
    "<165>1 2003-10-11T22:14:15.003Z mymachine.example.com evntslog - ID47 "
    r'[exampleSDID@32473 iut="3" eventID="10\"11\]\x"][b@1 x="1" x="2"] '
    "\ufeffAn application event"
)
ACCESS = (
    '127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /a b.gif HTTP/1.0" 200 2326 '
    r'"http://www.example.com/start.html" "Mozilla/4.08 [en] (\"Win98\"; I)"'
)
JOURNAL = {
    "__REALTIME_TIMESTAMP": "1700000000123456",
    "PRIORITY": "3",
    "_PID": "812",
    "MESSAGE": [104, 105],
    "BINARY": [255, 0],
    "UNIT": ["a", "b"],
    "LONG": None,
    "_HOSTNAME": "1E5",
}


def made(form: str, line: str, **options: Any) -> dict[str, Any]:
    """The attributes of a line."""
    return dict(log_reader(form, ReadOptions(**options))(line))


def test_structured_syslog_is_read() -> None:
    """Structured data, severity or time of RFC 5424 could not be filtered."""
    assert made("syslog", STRUCTURED) == {
        "facility": 20,
        "severity": 5,
        "time": AT,
        "host": "mymachine.example.com",
        "app": "evntslog",
        "msgid": "ID47",
        "exampleSDID@32473.iut": "3",
        "exampleSDID@32473.eventID": r'10"11]\x',
        "b@1.x": ("1", "2"),
        "message": "An application event",
    }
    assert made("syslog", "<0>1 - - - - - -") == {"facility": 0, "severity": 0}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "<34>Oct 11 22:14:15 mymachine su: 'su root' failed for lonvick on /dev/pts/8",
            {
                "facility": 4,
                "severity": 2,
                "time": "Oct 11 22:14:15",
                "host": "mymachine",
                "app": "su",
                "message": "'su root' failed for lonvick on /dev/pts/8",
            },
        ),
        (
            "2003-10-11T22:14:15.003+00:00 box sshd[12]: a: b",
            {"time": AT, "host": "box", "app": "sshd", "procid": "12", "message": "a: b"},
        ),
        (
            "Feb  5 17:32:18 10.0.0.99 Use the BFG!",
            {"time": "Feb  5 17:32:18", "host": "10.0.0.99", "message": "Use the BFG!"},
        ),
    ],
)
def test_traditional_syslog_is_read(line: str, expected: dict[str, Any]) -> None:
    """Logs of most daemons could not be matched."""
    assert made("syslog", line) == expected


def test_access_logs_are_read() -> None:
    """Requests of a web server could not be matched."""
    assert made("access", ACCESS) == {
        "host": "127.0.0.1",
        "user": "frank",
        "time": datetime(2000, 10, 10, 20, 55, 36, tzinfo=UTC),
        "request": "GET /a b.gif HTTP/1.0",
        "method": "GET",
        "path": "/a b.gif",
        "protocol": "HTTP/1.0",
        "status": 200,
        "bytes": 2326,
        "referer": "http://www.example.com/start.html",
        "agent": r"Mozilla/4.08 [en] (\"Win98\"; I)",
    }
    common = '::1 - - [10/Oct/2000:13:55:36 +0000] "-" 408 -'
    assert made("access", common, drop=frozenset({"time"})) == {"host": "::1", "status": 408}


def test_journald_is_read() -> None:
    """Numbers and messages that are no text would be texts and arrays of numbers."""
    assert made("journald", json.dumps(JOURNAL)) == {
        "__REALTIME_TIMESTAMP": datetime(2023, 11, 14, 22, 13, 20, 123_456, tzinfo=UTC),
        "PRIORITY": 3,
        "_PID": 812,
        "MESSAGE": "hi",
        "BINARY": b"\xff\0",
        "UNIT": ("a", "b"),
        "_HOSTNAME": "1E5",
    }


def test_named_groups_are_attributes() -> None:
    """A log in its own format would need a program."""
    pattern = r"^(?P<at>\S+) (?:(?P<user>\w+) )?took (?P<ms>\d+) ms"
    options = {"pattern": pattern, "types": {"at": "time"}, "rename": {"ms": "took.ms"}}
    assert made("lines", "2003-10-11T22:14:15.003Z took 12 ms more", **options) == {
        "at": AT,
        "took.ms": 12,
    }
    for wrong in ("(", "a", "(?P<1>a)"):
        with pytest.raises(InputError, match="found '"):
            ReadOptions(pattern=wrong)


def test_names_that_are_renamed_to_one() -> None:
    """The last of them would silently replace the others, which JSON keeps as several values."""
    names = {"user": "host", "method": "path", "ident": "host", "referer": "bytes"}
    found = made("access", ACCESS.replace("/a b.gif", "/a"), rename=names)
    assert found["host"] == ("127.0.0.1", "frank")
    assert found["path"] == ("/a", "GET")
    assert found["bytes"] == (2326, "http://www.example.com/start.html")


@pytest.mark.parametrize(
    ("form", "line", "reason"),
    [
        ("lines", "x", "expected a line that the pattern matches"),
        ("access", "x", "found 'x', expected a line of an access log"),
        ("access", ACCESS.replace("2326", "many"), "'bytes'"),
        ("access", ACCESS.replace("Oct", "Okt"), "'time'"),
        ("syslog", "x", "found 'x', expected a line of syslog"),
        ("syslog", "<192>1 - - - - - -", "found 192, expected a priority of at most 191"),
        ("syslog", '<1>1 - - - - - [a b="]"]', "expected a line of syslog"),
        ("journald", "{", "found"),
        ("journald", '{"MESSAGE": [256]}', "expected a text, its bytes, or several"),
        ("journald", '{"MESSAGE": {}}', "expected a text, its bytes, or several"),
        ("journald", '{"PRIORITY": "x"}', "'PRIORITY'"),
    ],
)
def test_lines_of_another_form_are_bad(tmp_path: Path, form: str, line: str, reason: str) -> None:
    """One line of another program would end the reading, or get other attributes in silence."""
    options = ReadOptions(pattern="(?P<a>[0-9])" if form == "lines" else None)
    (tmp_path / "f").write_text(f"\n{line}\n", "utf-8")
    (found,) = read_file(tmp_path / "f", form, options)
    assert isinstance(found, BadRecord)
    assert found.line == 2
    assert reason in found.reason


@pytest.mark.timeout(20)
def test_a_hostile_line_ends_soon() -> None:
    """A long name of a user would take minutes, as each bracket would be searched for its end."""
    found = record_of(log_reader("access", ReadOptions()), "f", 1, "a b c" + " [" * 200_000)
    assert isinstance(found, BadRecord)


@pytest.mark.parametrize("form", LOG_FORMATS)
@given(data=st.data())
def test_any_line_is_a_record_or_bad(form: str, data: st.DataObject) -> None:
    """A hostile line would end the reading of its file."""
    lines = {
        "access": ACCESS,
        "syslog": STRUCTURED,
        "journald": json.dumps(JOURNAL),
        "lines": "a 1",
    }
    options = ReadOptions(pattern=r"(?P<a>\S*) (?P<b>.*)" if form == "lines" else None)
    line = lines[form]
    at = data.draw(st.integers(0, len(line)))
    end = data.draw(st.integers(at, min(len(line), at + 4)))
    changed = line[:at] + data.draw(st.text(max_size=4)) + line[end:]
    for text in (changed, data.draw(st.text(max_size=20))):
        found = record_of(log_reader(form, options), "f", 1, text)
        assert isinstance(found, Record) or found.line


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (ACCESS, "access"),
        (STRUCTURED, "syslog"),
        ("Feb  5 17:32:18 box su: x", "syslog"),
        (json.dumps(JOURNAL), "journald"),
        ('{"a": 1}', "jsonl"),
    ],
)
def test_a_log_is_read_by_its_first_line(tmp_path: Path, line: str, expected: str) -> None:
    """A user would have to know the formats of all logs of a machine."""
    for name, data in (("a.log", line.encode()), ("a.LOG.gz", gzip.compress(line.encode()))):
        (tmp_path / name).write_bytes(b"" + data)
        assert format_of(tmp_path / name) == expected
    for other in ("once upon a time", "2025-01-01T00:00:00Z GET took 12 ms"):
        (tmp_path / "b.log").write_text(f"{other}\n")
        with pytest.raises(InputError, match="a log of another form: name its format"):
            format_of(tmp_path / "b.log")


def test_logs_are_matched_as_they_are_read(tmp_path: Path) -> None:
    """A subscription to a log would match other lines than its notifications."""
    (tmp_path / "a.log").write_text(f"{ACCESS}\nx\n{ACCESS.replace('200', '500')}\n")
    matcher = Matcher([parse("status >= 500")], ReadOptions(time="time"))  # type: ignore[list-item]
    found = list(matcher.file(tmp_path / "a.log", "access", "f"))
    assert [each.read for each in found] == [1, 0, 1]
    assert isinstance(found[1].records[0], BadRecord)
    assert found[2].records
    assert matcher.unmet == set()
    for form, pattern, reason in (("lines", None, "needs one"), ("csv", "(?P<a>.)", "is csv")):
        with pytest.raises(InputError, match=reason):
            list(read_file(tmp_path / "a.log", form, ReadOptions(pattern=pattern)))
