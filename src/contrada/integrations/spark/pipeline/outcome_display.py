"""What outcomes show of packed notifications, many at once: their times, and attributes as JSON.

Most attributes are read and shown by one call each for all rows. A row is *odd* where a value is
none that JSON shows as it is (bytes, several values, NaN): then it is shown by the functions of one
notification, and so byte for byte as these show every other.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import chain
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from contrada.integrations.files import plain_attributes
from contrada.matching.arrow_pack import blobs_in
from contrada.model.codec import notification_from_msgpack

_AS_THEY_ARE: Final = frozenset((bool, int, float, str, datetime, type(None)))

_json: Final = msgspec.json.Encoder()
_name: Final = msgspec.msgpack.Encoder().encode


class _ReadStamp(msgspec.Struct, array_like=True, gc=False):
    """An envelope up to its time."""

    id: msgspec.Raw = msgspec.Raw(b"")
    publisher: msgspec.Raw = msgspec.Raw(b"")
    sequence: msgspec.Raw = msgspec.Raw(b"")
    time_us: int | None = None


class _ReadParts(msgspec.Struct, array_like=True, gc=False):
    attributes: dict[str, Any]
    envelope: _ReadStamp


class _ReadNotification(msgspec.Struct, array_like=True, gc=False):
    """A packed notification, of which is read what outcomes show."""

    version: msgspec.Raw
    kind: msgspec.Raw
    payload: _ReadParts


_reader: Final = msgspec.msgpack.Decoder(list[_ReadNotification])


def shown_rows(packed: Any) -> tuple[Any, Any]:
    """The times and the attributes of a column of packed notifications, which were checked.

    None of them is NULL. Cost: some microseconds for each.
    """
    blobs = blobs_in(packed)
    data = blobs.data[blobs.starts[0] : blobs.starts[-1]]
    every = _reader.decode(b"".join((b"\xdd", blobs.size.to_bytes(4, "big"), data)))
    found = [each.payload for each in every]
    times = pa.array([each.envelope.time_us for each in found], pa.int64())
    values = [each.attributes for each in found]
    lines = _json.encode_lines(values).split(b"\n")[:-1]  # In JSON a line break is escaped.
    for row in _odd(values, lines):
        notification = notification_from_msgpack(blobs.at(row))
        lines[row] = _json.encode(plain_attributes(notification))
    return times, pa.array(lines, pa.binary()).cast(pa.string())


def _odd(values: list[dict[str, Any]], lines: list[bytes]) -> Iterator[int]:
    """The rows that JSON does not show as they are."""
    kinds = set(map(type, chain.from_iterable(map(dict.values, values))))
    are_plain = kinds <= _AS_THEY_ARE
    for row, line in enumerate(lines):
        # Where a number is not finite stands null.
        if (b"null" in line and float in kinds and _has_infinite(values[row])) or not (
            are_plain or _AS_THEY_ARE.issuperset(map(type, values[row].values()))
        ):
            yield row


def _has_infinite(values: dict[str, Any]) -> bool:
    return any(type(each) is float and each - each != 0 for each in values.values())


def names_in(packed: Any, names: Iterable[str]) -> set[str]:
    """Those of some names that an attribute of packed notifications has. None of these is NULL.

    Cost: a search for each name among the bytes, and a microsecond for each row that has it there,
    until one has it as a name.
    """
    found = set()
    for name in names:
        is_there = pc.match_substring(packed, _name(name))  # It may be the text of a value.
        for row in is_there.to_numpy(zero_copy_only=False).nonzero()[0].tolist():
            if name in notification_from_msgpack(packed[row].as_py()):
                found.add(name)
                break
    return found
