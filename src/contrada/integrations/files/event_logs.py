"""`read_event_log`: the records of an event log of Windows (EVTX).

The library `evtx` reads the binary XML. Attributes are those of the same event in JSON
(`sigma.attributes_of`), so rules find the fields that they name. A record that cannot be read, or a
chunk of records, is a bad record; the others are read.

Source: Microsoft, [MS-EVEN6] §2.2.12 (BinXml).
"""

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from io import BytesIO
from typing import Any, Final

from contrada.errors import ContradaError, InputError, LimitError, MissingRequirementError
from contrada.integrations.files.json_objects import notification_of_content
from contrada.integrations.files.lines import PACKED, DataFile, FileLimits, open_document, readable
from contrada.integrations.files.read_options import ReadOptions
from contrada.integrations.files.record import BAD_TEXT_CHARS_MAX, BadRecord, Record, bad_record
from contrada.model.algebra.nested_objects import OBJECT_DEPTH_MAX

EVTX: Final = "evtx"
"""The format of event logs of Windows."""

_HEADER_BYTES: Final = 4_096
_CHUNK_BYTES: Final = 65_536


def read_event_log(
    path: DataFile, source: str, options: ReadOptions
) -> Iterator[Record | BadRecord]:
    """Yields the records of an event log, numbered from 1 on by their place in the file. A packed
    log, or one from a pipe, is read into memory and is at most `document_bytes_max` long. Cost:
    proportional to the file; one chunk of 64 KiB is in memory. Raises MissingRequirementError
    without the library.
    """
    with ExitStack() as opened:
        try:
            events, rest = _events(path, options.limits, opened)
        except (InputError, LimitError) as error:
            yield bad_record(source, error, None)
            return
        number = 0
        while True:
            number += 1
            try:
                event = next(events)
            except StopIteration:
                break
            except (RuntimeError, OSError) as error:
                yield BadRecord(source, f"record {number}: {_on_one_line(error)}")
            else:
                yield _record(source, number, event["data"], options)
        if rest:  # The library leaves it out.
            reason = f"found {rest} bytes of the last chunk, expected {_CHUNK_BYTES}"
            yield BadRecord(source, f"record {number}: {reason}")


def _events(
    path: DataFile, limits: FileLimits, opened: ExitStack
) -> tuple[Iterator[dict[str, Any]], int]:
    """Returns the events of a log, each with its JSON text, and the bytes of a truncated chunk at
    the end. Raises InputError, LimitError and MissingRequirementError.
    """
    try:
        from evtx import PyEvtxParser
    except ImportError:
        raise MissingRequirementError("evtx", "pip install 'contrada[evtx]'") from None
    with readable(path):
        stream: Any = opened.enter_context(path.open("rb"))
        # The library seeks in a log.
        if path.suffix in PACKED or not stream.seekable():
            stream = BytesIO(open_document(path, limits))
        size = stream.seek(0, os.SEEK_END)
        stream.seek(0)
    if not size:
        return iter(()), 0  # An empty file has no records, in any format.
    try:
        events: Any = PyEvtxParser(stream, number_of_threads=1).records_json()
    except (RuntimeError, OSError) as error:
        reason = f"expected an event log of Windows: {_on_one_line(error)}"
        raise InputError(str(path), reason) from None
    return events, (size - _HEADER_BYTES) % _CHUNK_BYTES


def _record(source: str, number: int, text: str, options: ReadOptions) -> Record | BadRecord:
    # Not above: `contrada match` would import the reader of rules for each format.
    from contrada.integrations.dialects.sigma.windows_events import attributes_of

    try:
        attributes = attributes_of(_decode(text))
        return Record(source, number, notification_of_content(attributes, options))
    except ContradaError as error:
        reason = f"record {number}: {bad_record(source, error, None).reason}"
        return BadRecord(source, reason, None, None, text[:BAD_TEXT_CHARS_MAX])


def _decode(text: str) -> Any:
    """Returns the JSON of an event. The library repeats a name that several elements have."""
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise LimitError("OBJECT_DEPTH_MAX", OBJECT_DEPTH_MAX) from None


def _joined(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            held = found[name]
            found[name] = [*(held if isinstance(held, list) else [held]), value]
        else:
            found[name] = value
    return found


def _on_one_line(error: Exception) -> str:
    return " ".join(str(error).split())


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_joined)
