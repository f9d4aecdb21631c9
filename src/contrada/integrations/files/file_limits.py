"""`FileLimits`: the bounds of reading one source, part of its `ReadOptions`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLimits:
    """Limits of the readers of files."""

    line_chars_max: int = 16 * 2**20
    """Characters of a line or row. Beyond it: it is a bad record, and the next line is read."""

    row_lines_max: int = 1_000
    """Lines of a row of CSV. Beyond it: its first line is a bad record, and the next lines are
    rows."""

    columns_max: int = 10_000
    """Columns of a CSV file. Beyond it: the file is a bad record as a whole."""

    document_bytes_max: int = 64 * 2**20
    """Bytes of a document, unpacked. Beyond it: the document is a bad record."""

    block_bytes: int = 2**20
    """Bytes read from a file at once. Beyond it: the next block takes the rest."""

    bulk_after_bytes: int = 2**19
    """Bytes that are read line by line; importing pyarrow takes as long. Beyond it: lines are read
    in batches."""

    fallback_share_max: float = 0.1
    """Share of a block's lines that the batch reader leaves to the plain reader. Beyond it: Arrow
    or msgspec reads the block."""

    packed_records_max: int = 4_096
    """Matched lines that are packed into columns together. Beyond it: the next lines are packed
    separately."""

    packed_bytes_max: int = 4 * 2**20
    """Bytes of matched lines that are packed into columns together. Beyond it: the next lines are
    packed separately."""
