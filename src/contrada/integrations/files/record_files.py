"""`read_file`: the records of a file, in the format of its name."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from contrada.errors import ContradaError, InputError
from contrada.integrations.files.csv_rows import read_rows
from contrada.integrations.files.event_logs import EVTX, read_event_log
from contrada.integrations.files.json_objects import read_array, read_objects
from contrada.integrations.files.lines import (
    WHOLE,
    DataFile,
    Part,
    open_blocks,
    open_document,
    open_lines,
    printable,
    unpacked_name,
)
from contrada.integrations.files.log_lines import (
    LOG_FORMATS,
    LOG_LINE_SHOWN_MAX,
    format_of_line,
    log_reader,
)
from contrada.integrations.files.read_options import ReadOptions, plain_format
from contrada.integrations.files.record import BadRecord, Record, bad_record
from contrada.integrations.files.renderer import Renderer

FORMATS: Final = ("csv", "tsv", "json", "jsonl", "xml", EVTX, *LOG_FORMATS)

LOG_SUFFIX: Final = ".log"
"""The suffix of files whose first line determines the format."""

_FORMAT_OF_SUFFIX: Final = {
    ".csv": "csv",
    ".tsv": "tsv",
    **dict.fromkeys((".json", ".geojson"), "json"),
    **dict.fromkeys((".jsonl", ".ndjson"), "jsonl"),
    **dict.fromkeys((".xml", ".atom", ".cap", ".gpx", ".rss"), "xml"),
    ".evtx": EVTX,
}


def format_of(path: Path) -> str:
    """Returns the format of a file name, or of the first line of a `.log`; a suffix of compression
    is ignored. Raises InputError if it is unknown, and for an unreadable log.
    """
    suffix = Path(unpacked_name(path.name)).suffix
    if suffix.lower() == LOG_SUFFIX:
        line = next((each for each in open_lines(path) if each.strip()), "")
        if not line:
            return "jsonl"  # Without a record, as in any format.
        if (found := format_of_line(line)) is None:
            reason = f"found {line[:LOG_LINE_SHOWN_MAX]!r}, a log of another form: name its format"
            raise InputError(str(path), reason, 1)
        return found
    format_name = _FORMAT_OF_SUFFIX.get(suffix.lower())
    if format_name is None:
        known = " ".join((*_FORMAT_OF_SUFFIX, LOG_SUFFIX))
        raise InputError(str(path), f"unknown suffix {suffix!r}, expected one of {known}")
    return format_name


def check_name_of(path: Path) -> None:
    """Refuses a file name that is not UTF-8: no result could name the file. Raises InputError."""
    if printable(str(path)) != str(path):
        raise InputError(printable(str(path)), "the name of the file is not UTF-8")


def read_file(
    path: DataFile,
    format_name: str,
    options: ReadOptions,
    source: str | None = None,
    part: Part = WHOLE,
) -> Iterator[Record | BadRecord]:
    """Yields the records of a file, including bad ones; `source` names the file in them. Documents
    are read whole, except for large ones with entries. Only lines of JSON and of logs have a
    `part`. An unreadable file is one bad record. Cost: proportional to the file.
    """
    source = str(path) if source is None else source
    format_name, options = plain_format(format_name, options)
    if format_name == "csv":
        yield from read_rows(open_blocks(path, limits=options.limits), source, options)
    elif format_name in LOG_FORMATS:
        blocks = open_blocks(path, part, options.limits)
        yield from read_objects(blocks, source, options, log_reader(format_name, options))
    elif format_name == "json" and not options.entries:
        yield from read_objects(open_blocks(path, part, options.limits), source, options)
    elif format_name == "xml":
        yield from Renderer(options).render_file(path, source)
    elif format_name == EVTX:
        yield from read_event_log(path, source, options)
    else:
        try:
            data = open_document(path, options.limits)
        except ContradaError as error:
            yield bad_record(source, error, None)
        else:
            yield from read_array(data, source, options)
