"""`event_log`: makes the bytes of an event log of Windows (EVTX), for tests.

An event is a template with its values, as Windows writes it: texts stand in the template, numbers
are values of 32 bits.

Source: libevtx, "Windows XML Event Log (EVTX) format".
"""

import struct
from collections.abc import Mapping, Sequence
from typing import TypeAlias
from zlib import crc32

HEADER_BYTES, CHUNK_BYTES, RECORDS_AT = 4_096, 65_536, 512
FILETIME_OF_2020 = 132_223_104_000_000_000

Child: TypeAlias = "XmlElement | str | int"
XmlElement: TypeAlias = tuple[str, Mapping[str, str], Sequence[Child]]
"""A name, attributes, and the texts, numbers and elements within."""


def windows_event(number: int, data: Sequence[tuple[str, str]], part: str = "Data") -> XmlElement:
    """Returns an event of Sysmon with named data."""
    values: list[Child] = [("Data", {"Name": name}, [value]) for name, value in data]
    header: list[Child] = [
        ("Provider", {"Name": "Microsoft-Windows-Sysmon"}, []),
        ("EventID", {}, [number]),
        ("TimeCreated", {"SystemTime": "2020-01-01T00:00:00.000000Z"}, []),
        ("Channel", {}, ["Microsoft-Windows-Sysmon/Operational"]),
    ]
    return ("Event", {}, [("System", {}, header), (f"Event{part}", {}, values)])


def event_log(*events: XmlElement) -> bytes:
    """Returns a log of one chunk."""
    records = bytearray()
    for number, event in enumerate(events, start=1):
        start = RECORDS_AT + len(records)
        xml = _event(event, start + 24)
        size = struct.pack("<I", len(xml) + 28)
        head = struct.pack("<QQ", number, FILETIME_OF_2020)
        records += b"**\0\0" + size + head + xml + size
    last, end = len(events), RECORDS_AT + len(records)
    head = b"ElfChnk\0" + struct.pack("<QQQQ", 1, last, 1, last)
    head += struct.pack("<IIII", 128, end, end, crc32(records)) + bytes(64)
    tables = bytes(384)
    chunk = head + struct.pack("<II", 0, crc32(head + tables)) + tables + records
    file = b"ElfFile\0" + struct.pack("<QQQIHHHH", 0, 0, last + 1, 128, 1, 3, HEADER_BYTES, 1)
    file += bytes(76)
    file += struct.pack("<II", 0, crc32(file))
    return file.ljust(HEADER_BYTES, b"\0") + chunk.ljust(CHUNK_BYTES, b"\0")


def _event(event: XmlElement, at: int) -> bytes:
    """Returns a fragment with an instance of a template, for a place in its chunk."""
    values: list[int] = []
    head = bytes((0x0F, 1, 1, 0, 0x0C, 1)) + struct.pack("<II", 1, at + 14)
    definition_at = at + len(head) + 24
    definition = bytes((0x0F, 1, 1, 0)) + _element(event, definition_at + 4, values) + b"\0"
    head += struct.pack("<I16sI", 0, b"", len(definition))
    described = b"".join(struct.pack("<HH", 4, 0x08) for _ in values)
    held = b"".join(struct.pack("<I", each) for each in values)
    return head + definition + struct.pack("<I", len(values)) + described + held + b"\0"


def _element(element: XmlElement, at: int, values: list[int]) -> bytes:
    name, attributes, children = element
    # Behind the token: a dependency, the size, and the place of the name.
    inner = _name(name, at + 11)
    if attributes:
        listed = b""
        for number, (key, text) in enumerate(attributes.items(), start=1):
            token = 0x06 if number == len(attributes) else 0x46
            place = at + 11 + len(inner) + 4 + len(listed) + 5
            listed += struct.pack("<BI", token, place) + _name(key, place) + _text(text)
        inner += struct.pack("<I", len(listed)) + listed
    inner += b"\x02" if children else b"\x03"
    for child in children:
        place = at + 11 + len(inner)
        if isinstance(child, str):
            inner += _text(child)
        elif isinstance(child, int):
            inner += struct.pack("<BHB", 0x0D, len(values), 0x08)
            values.append(child)
        else:
            inner += _element(child, place, values)
    inner += b"\x04" if children else b""
    token = 0x41 if attributes else 0x01
    return struct.pack("<BHII", token, 0xFFFF, len(inner) + 4, at + 11) + inner


def _name(name: str, at: int) -> bytes:
    return struct.pack("<IHH", 0, 0, len(name)) + name.encode("utf-16-le") + b"\0\0"


def _text(text: str) -> bytes:
    encoded = text.encode("utf-16-le")
    return struct.pack("<BBH", 0x05, 0x01, len(encoded) // 2) + encoded
