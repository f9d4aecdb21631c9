"""`read_records` and `answer_document`: the records of a text that was pasted into the console.

    answer_document(PastedDocument(text="<a><b>1</b></a>", strategy="index"))
    ==>  {"records": [{"number": 1, "record": '{"a.b":1}', "document": "<a><b>1</b></a>"}], …}

Source: Erenkrantz 2001 §4.1 (RenderFrame), §4.2 (ReceiveFrame shows the document again).
"""

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, BinaryIO, Final, Literal

from msgspec import Struct

from contrada.errors import ContradaError, InvalidValueError
from contrada.integrations.documents import SHAPE_TYPE, STRATEGIES, document_of
from contrada.integrations.files.json_objects import (
    notification_of_content,
    records_of_object,
    shown_text,
)
from contrada.integrations.files.read_options import ReadOptions
from contrada.integrations.files.record import BadRecord, Record, bad_record
from contrada.integrations.files.record_files import read_file
from contrada.model import Notification

_SOURCE: Final = "records"


@dataclass(frozen=True)
class _TextFile:
    """A text that is read as a file."""

    text: str
    suffix: str = ""

    def open(self, _mode: Literal["rb"]) -> BinaryIO:
        return io.BytesIO(self.text.encode("utf-8", "surrogatepass"))

    def __str__(self) -> str:
        return _SOURCE


def read_records(text: str, options: ReadOptions) -> Iterator[Record | BadRecord]:
    """Yields the records of a text: its first character decides about its format.

    `[` or `{` begin JSON, one object, an array or lines of objects; `<` begins XML; else CSV.
    """
    text = text.strip()
    if text[:1] == "<":
        yield from read_file(_TextFile(text), "xml", options)
    elif text[:1] not in ("[", "{"):
        yield from read_file(_TextFile(text), "csv", options)
    else:
        try:
            content = json.loads(text)
        except (ValueError, RecursionError):
            # Lines, or malformed: the reader of lines has the place.
            yield from read_file(_TextFile(text), "json", options)
            return
        if not isinstance(content, list):
            yield from records_of_object(text.encode("utf-8", "surrogatepass"), _SOURCE, options)
            return
        for number, each in enumerate(content, 1):
            try:
                yield Record(_SOURCE, number, notification_of_content(each, options))
            except ContradaError as error:
                yield bad_record(_SOURCE, error, number)


def shown_record(of: Record | BadRecord) -> dict[str, Any]:
    """Returns a record as a row of the console."""
    if isinstance(of, BadRecord):
        return {"number": of.line, "error": of.reason}
    shown = of.notification
    if shown.content_type == SHAPE_TYPE:  # The shape of its document is for receivers.
        shown = Notification(shown.attributes)
    # Text: JavaScript would round large integers.
    return {"number": of.number, "record": shown_text(shown)}


# --- the sender ----------------------------------------------------------------------------------

DOCUMENT_RECORDS_MAX: Final = 1_000
"""Notifications of a document in the console. Beyond it: none is published, and the answer says so.
"""

_OFFERED: Final = tuple(each for each in STRATEGIES if each != "xslt")  # That needs a stylesheet.


class DocumentAddress(Struct, forbid_unknown_fields=True):
    """The HTTP address of a document."""

    address: str


class PastedDocument(Struct, forbid_unknown_fields=True):
    """A text in XML, JSON or CSV, and how its repeated elements are named."""

    text: str
    strategy: str = "multi"
    entries: str = ""


def answer_document(document: PastedDocument) -> dict[str, Any]:
    """Returns the notifications as an object of JSON. Raises InvalidValueError."""
    found = _records(document)
    rows = [shown_record(each) | _again(each) for each in found[:DOCUMENT_RECORDS_MAX]]
    return {"records": rows, "is_cut": len(found) > DOCUMENT_RECORDS_MAX}


def notifications_in(document: PastedDocument) -> list[Notification]:
    """Returns the notifications, to publish. Raises InvalidValueError for the first bad record."""
    found = _records(document)
    if len(found) > DOCUMENT_RECORDS_MAX:
        reason = f"more than DOCUMENT_RECORDS_MAX = {DOCUMENT_RECORDS_MAX} notifications"
        raise InvalidValueError("the document", reason)
    for each in found:
        if isinstance(each, BadRecord):
            raise each.error()
    return [each.notification for each in found if isinstance(each, Record)]


def _records(document: PastedDocument) -> list[Record | BadRecord]:
    if document.strategy not in _OFFERED:
        raise InvalidValueError(document.strategy, f"expected a strategy: {', '.join(_OFFERED)}")
    options = ReadOptions(strategy=document.strategy, entries=document.entries or None)
    return list(islice(read_records(document.text, options), DOCUMENT_RECORDS_MAX + 1))


def _again(record: Record | BadRecord) -> dict[str, str]:
    """Returns the document that a receiver makes of a notification, where it has its shape."""
    if isinstance(record, BadRecord):
        return {}
    try:
        return {"document": document_of(record.notification).decode("utf-8", "replace")}
    except ContradaError:
        return {}  # A notification without a shape is no document: nothing is shown.
