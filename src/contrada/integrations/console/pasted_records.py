"""`read_records`: the records of a text that was pasted into the console."""

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, Literal

from contrada.errors import ContradaError
from contrada.integrations.documents import SHAPE_TYPE
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
