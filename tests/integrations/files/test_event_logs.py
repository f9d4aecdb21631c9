"""Event logs of Windows as notifications.

The logs are made here (`event_log_file`): the project holds no data of others.
"""

import gzip
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.integrations.dialects import sigma
from contrada.integrations.files import (
    BadRecord,
    Matcher,
    ReadOptions,
    Record,
    format_of,
    read_file,
)
from contrada.integrations.files.lines import FileLimits
from contrada.model import Notification, parse
from tests.commands import here
from tests.integrations.files.event_log_file import (
    CHUNK_BYTES,
    HEADER_BYTES,
    XmlElement,
    event_log,
    windows_event,
)

STARTS = [windows_event(1, [("Image", rf"C:\{name}.exe"), ("User", "ü")]) for name in "ab"]
LOG = event_log(*STARTS)
RULE = r"""
title: A starts
id: 5d7a1b1e-8a77-4f3c-9d7b-1c0f6f1a0002
level: high
logsource: {product: windows, category: process_creation}
detection:
    selection:
        Image|endswith: '\A.exe'
    condition: selection
"""


def read(data: bytes, folder: Path, name: str = "a.evtx", **options: Any) -> list[object]:
    """The notifications, or the reasons, of the records of a log."""
    (folder / name).write_bytes(data)
    found = read_file(folder / name, "evtx", ReadOptions(**options))
    return [each.notification if isinstance(each, Record) else each.reason for each in found]


def test_an_event_has_the_attributes_of_its_json(tmp_path: Path) -> None:
    """Rules would match the exported events of a log, and not the log itself."""
    event = {
        "Event": {
            "System": {
                "Provider": {"#attributes": {"Name": "Microsoft-Windows-Sysmon"}},
                "EventID": 1,
                "TimeCreated": {"#attributes": {"SystemTime": "2020-01-01T00:00:00.000000Z"}},
                "Channel": "Microsoft-Windows-Sysmon/Operational",
            },
            "EventData": {"Image": r"C:\a.exe", "User": "ü"},
        }
    }
    assert read(LOG, tmp_path)[0] == Notification(sigma.attributes_of(event))
    assert format_of(tmp_path / "a.evtx") == format_of(Path("b.EVTX.gz")) == "evtx"


def test_options_apply_to_events(tmp_path: Path) -> None:
    """The time of an event could not be that of its notification."""
    options: dict[str, Any] = {
        "types": {"at": "time", "EventID": "text"},
        "rename": {"TimeCreated_SystemTime": "at"},
        "drop": frozenset({"User"}),
        "time": "at",
    }
    for found in read(LOG, tmp_path, **options):
        assert isinstance(found, Notification)
        assert found.envelope.time_us == 1_577_836_800_000_000
        assert "User" not in found
        assert found["EventID"] == 1


def test_repeated_and_nested_data_are_kept(tmp_path: Path) -> None:
    """Data of one name would refuse an event, and logs of certificates could not be read."""
    chain: XmlElement = ("Chain", {"ref": "1"}, [("Part", {"file": name}, []) for name in "xy"])
    policy: XmlElement = ("Policy", {"of": "p"}, [chain, ("Flags", {}, ["f"])])
    event: XmlElement = ("Event", {}, [("System", {}, [("EventID", {}, [30])])])
    nested = (*event[:2], [*event[2], ("UserData", {"xmlns": "urn:x"}, [policy])])
    repeated = windows_event(1, [("Image", "a"), ("Image", "b")])
    first, second = read(event_log(nested, repeated), tmp_path)
    assert first == Notification(
        {
            "EventID": 30,
            "Policy_of": "p",
            "Chain_ref": "1",
            "Chain_Part_file": "x",
            "Chain_Part_1_file": "y",
            "Flags": "f",
        }
    )
    assert isinstance(second, Notification)
    assert second["Image"] == ("a", "b")


def test_a_damaged_record_is_bad_and_the_others_are_read(tmp_path: Path) -> None:
    """One damaged record would hide the rest of a log, or vanish without a word."""
    three = bytearray(event_log(*STARTS, STARTS[0]))
    second = three.index(b"**\0\0", HEADER_BYTES + 600)
    three[second + 24 + 14 + 24] = 0xEE  # The beginning of its template.
    found = read(bytes(three), tmp_path)
    assert [isinstance(each, Notification) for each in found] == [True, False, True]
    assert str(found[1]).startswith("record 2: ")


@pytest.mark.parametrize(
    ("data", "reasons"),
    [
        (b"", []),
        (b"hello", ["expected an event log of Windows: "]),
        (b"PK" + LOG[2:], ["expected an event log of Windows: "]),
        (LOG[:-9], [f"record 1: found {CHUNK_BYTES - 9} bytes of the last chunk, expected 65536"]),
    ],
)
def test_a_file_that_is_no_whole_log_is_bad(
    tmp_path: Path, data: bytes, reasons: Sequence[str]
) -> None:
    """A truncated log would be one without events."""
    found = list(map(str, read(data, tmp_path)))
    assert len(found) == len(reasons)
    assert all(map(str.startswith, found, reasons))


def test_a_packed_log_is_read_within_a_limit(tmp_path: Path) -> None:
    """A small file would fill the memory."""
    assert read(gzip.compress(LOG), tmp_path, "a.evtx.gz") == read(LOG, tmp_path)
    limits = FileLimits(document_bytes_max=len(LOG) - 1)
    (found,) = read(gzip.compress(LOG), tmp_path, "a.evtx.gz", limits=limits)
    assert "document_bytes_max" in str(found)
    assert len(read(LOG, tmp_path, limits=limits)) == 2


def test_a_deep_event_is_refused(tmp_path: Path) -> None:
    """A hostile event would end the program by its depth."""
    deep: XmlElement = ("a", {}, ["x"])
    for _ in range(100):
        deep = ("a", {}, [deep])
    header: XmlElement = ("System", {}, [("EventID", {}, [1])])
    (found,) = read(event_log(("Event", {}, [header, ("UserData", {}, [deep])])), tmp_path)
    assert "OBJECT_DEPTH_MAX" in str(found)


@given(data=st.data())
def test_any_bytes_are_records_or_bad(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A hostile log would end the reading, or an error would have no place."""
    held = bytearray(LOG)
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, HEADER_BYTES + 3_000))
        piece = data.draw(st.binary(min_size=1, max_size=8))
        held[at : at + len(piece)] = piece
    path = tmp_path_factory.getbasetemp() / "hostile.evtx"
    path.write_bytes(held[: data.draw(st.integers(0, len(held)))])
    for found in read_file(path, "evtx", ReadOptions(), "f"):
        assert isinstance(found, Record) or found.reason.startswith(("record ", "expected "))


def test_rules_match_an_event_log(tmp_path: Path) -> None:
    """Events would have to be exported first."""
    (tmp_path / "a.evtx").write_bytes(LOG)
    (tmp_path / "rule.yml").write_text(RULE)
    rules, log = str(tmp_path / "rule.yml"), str(tmp_path / "a.evtx")
    ended = here("match", "--from", "sigma", rules, log)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["record"] == 1
    assert found["rule"]["title"] == "A starts"
    assert found["attributes"]["Image"] == r"C:\a.exe"
    (tmp_path / "b.evtx").write_bytes(LOG[:-1])
    ended = here("match", "--from", "sigma", rules, log, str(tmp_path / "b.evtx"), "--count")
    assert ended.returncode == 2
    assert "b.evtx: record 1: found 65535 bytes of the last chunk" in ended.stderr


def test_standard_input_may_be_an_event_log(tmp_path: Path) -> None:
    """A log that another program unpacks could not be read."""
    (tmp_path / "f.filters").write_text("every: EventID exists\n")
    command = [sys.executable, "-m", "contrada", "match", str(tmp_path / "f.filters"), "-"]
    ended = subprocess.run(
        [*command, "--format", "evtx", "--count", "--json"], input=LOG, capture_output=True
    )
    assert json.loads(ended.stdout)["matches"] == {"every": 2}


def test_a_matcher_counts_the_events_of_a_log(tmp_path: Path) -> None:
    """A pipeline would count other events than are in a log."""
    (tmp_path / "a.evtx").write_bytes(LOG)
    matcher = Matcher([parse("Image suffix 'b.exe'")], ReadOptions())  # type: ignore[list-item]
    found = list(matcher.file(tmp_path / "a.evtx", "evtx", "f"))
    assert sum(each.read for each in found) == 2
    (matched,) = [each for some in found for each in some.records]
    assert not isinstance(matched, BadRecord)
    assert matched.record.number == 2
