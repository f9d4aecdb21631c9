"""Raw records to notifications: the cells of rows, the members of JSON objects, the options.

One function per format turns a raw record into a notification. `contrada match` and the
pipeline on Spark both call it, so that they cannot give different answers; Spark only reads,
splits and distributes. Nothing here opens a network connection or reads a clock.
"""

from contrada.records.documents import records_of_tree
from contrada.records.files import FORMATS, check_name_of, format_of, read_file
from contrada.records.lines import WHOLE, Part, open_lines, parts_of
from contrada.records.matcher import MatchedRecord, Matcher, Outcomes
from contrada.records.objects import notification_of_object, read_objects, records_of_lines
from contrada.records.plain import plain_attributes, plain_time
from contrada.records.reading import Reading
from contrada.records.record import BadRecord, Record
from contrada.records.rendering import Renderer, read_document
from contrada.records.rows import Rows, read_rows
from contrada.records.shown import notification_of_shown, shown_text
from contrada.records.subscriptions import Subscriptions, read_subscriptions

__all__ = [
    "BadRecord",
    "FORMATS",
    "MatchedRecord",
    "Matcher",
    "Outcomes",
    "Part",
    "Reading",
    "Record",
    "Renderer",
    "Rows",
    "Subscriptions",
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
    "read_objects",
    "read_rows",
    "read_subscriptions",
    "records_of_lines",
    "records_of_tree",
    "shown_text",
]
