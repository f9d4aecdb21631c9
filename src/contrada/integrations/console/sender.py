"""`answer_document`: the notifications that a document, rows or objects become.

    answer_document(PastedDocument(text="<a><b>1</b></a>", strategy="index"))
    ==>  {"records": [{"number": 1, "record": '{"a.b":1}', "document": "<a><b>1</b></a>"}], …}

Source: Erenkrantz 2001 §4.1 (RenderFrame), §4.2 (ReceiveFrame shows the document again).
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from msgspec import Struct

from contrada.errors import ContradaError, InvalidValueError
from contrada.integrations.console.pasted_records import read_records, shown_record
from contrada.integrations.documents import STRATEGIES, document_of
from contrada.integrations.files.read_options import ReadOptions
from contrada.integrations.files.record import BadRecord, Record
from contrada.model import Notification

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
    records: Iterator[Record | BadRecord] = read_records(document.text, options)
    return list(islice(records, DOCUMENT_RECORDS_MAX + 1))


def _again(record: Record | BadRecord) -> dict[str, str]:
    """Returns the document that a receiver makes of a notification, where it has its shape."""
    if isinstance(record, BadRecord):
        return {}
    try:
        return {"document": document_of(record.notification).decode("utf-8", "replace")}
    except ContradaError:
        return {}  # A notification without a shape is no document: nothing is shown.
