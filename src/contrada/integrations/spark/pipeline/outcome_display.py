"""`show_rows`: times, and attributes as JSON, of a whole column of packed notifications.

Most attributes are decoded and encoded by one call each for all rows. A row is *odd* if JSON cannot
show a value directly (bytes, several values, NaN); odd rows are encoded one by one, byte for byte
as everywhere else.
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
    """A packed notification, decoded as far as outcomes show it."""

    version: msgspec.Raw
    kind: msgspec.Raw
    payload: _ReadParts


_reader: Final = msgspec.msgpack.Decoder(list[_ReadNotification])


def show_rows(packed: Any) -> tuple[Any, Any]:
    """Returns the times and the attributes of a column of checked packed notifications without
    NULL.

    Cost: some microseconds for each.
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
    """Yields the rows that JSON cannot show directly."""
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
    """Returns the names, among some, of attributes in packed notifications without NULL.

    Cost: a search for each name among the bytes, and a microsecond for each row that contains it,
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
