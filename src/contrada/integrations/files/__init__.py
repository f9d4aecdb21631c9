"""Files of records: CSV rows, JSON lines, XML documents, and the options of their sources.

One function per format turns a raw record into a notification. `contrada match` and the pipeline on
Spark both call it, so they give the same answers; Spark only reads, splits and distributes. This
package opens no network connection and reads no clock.
"""

from functools import partial

from contrada.integrations.files.csv_rows import CsvRows
from contrada.integrations.files.json_objects import (
    notification_of_object,
    notification_of_shown,
    shown_text,
)
from contrada.integrations.files.lines import WHOLE, FileLimits, Part, open_lines, parts_of
from contrada.integrations.files.read_options import ReadOptions
from contrada.integrations.files.record import BadRecord, Record, plain_attributes, plain_time
from contrada.integrations.files.record_files import FORMATS, check_name_of, format_of, read_file
from contrada.integrations.files.record_matcher import MatchedRecord, Matcher, Outcomes
from contrada.integrations.files.renderer import Renderer, read_document
from contrada.integrations.files.subscription_files import read_subscriptions
from contrada.renamed_modules import former_name

__all__ = [
    "BadRecord",
    "FORMATS",
    "FileLimits",
    "MatchedRecord",
    "Matcher",
    "Outcomes",
    "Part",
    "ReadOptions",
    "Record",
    "Renderer",
    "CsvRows",
    "WHOLE",
    "check_name_of",
    "format_of",
    "notification_of_object",
    "notification_of_shown",
    "open_lines",
    "parts_of",
    "plain_attributes",
    "plain_time",
    "read_document",
    "read_file",
    "read_subscriptions",
    "shown_text",
]

__getattr__ = partial(former_name, __name__)
