"""The bytes, the intact part and the bad records of XML documents.

A document that is not well formed is a bad record. With `entries` each broken entry is a bad
record. All other entries are still read if the document around them is readable or only truncated.

Source: Erenkrantz 2001 §5 (parsing), §8.2 (one event per story).
"""

from lxml import etree

from contrada.errors import LimitError, ParseError
from contrada.integrations.documents.damaged_document import DamagedPiece, without_damage
from contrada.integrations.documents.element_tree import parsed
from contrada.integrations.files.lines import DataFile, FileLimits, unpacked
from contrada.integrations.files.record import BadRecord, bad_record, beginning


def open_document(path: DataFile, limits: FileLimits = FileLimits()) -> bytes:
    """Returns the unpacked bytes of a document. Raises InputError and LimitError."""
    with unpacked(path) as stream:
        data: bytes = stream.read(limits.document_bytes_max + 1)
    if len(data) > limits.document_bytes_max:
        raise LimitError("document_bytes_max", limits.document_bytes_max)
    return data


def intact_part(
    data: bytes, source: str, entries: str | None, *, instructions: bool = False
) -> tuple[etree._Element | None, list[BadRecord]]:
    """Returns the root of a document, or of its part around damaged entries, and the bad records.
    `instructions` keeps processing instructions. Raises LimitError.
    """
    faults: list[DamagedPiece] = []
    root: etree._Element | None = None
    try:
        return parsed(data, instructions=instructions), []
    except ParseError as error:
        if entries:
            faults, root = without_damage(data, entries, instructions=instructions)
        if not faults or root is None:
            faults = [(error, data)]
    return root, [bad_record(source, fault, None, beginning(piece)) for fault, piece in faults]
