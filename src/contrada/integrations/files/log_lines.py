"""`log_reader`: the lines of text logs as notifications.

    lines      the named groups of a regular expression, found anywhere in a line
    access     the Common or Combined Log Format of web servers, as the groups of one expression
    syslog     RFC 5424, RFC 3164, and the files of syslog daemons, which leave out the priority
    journald   the lines of `journalctl -o json`

The values of `lines` are inferred as those of cells. The other formats give each attribute its
type; an attribute with a declared type has that one. `-` means no value in `access` and `syslog`.
RFC 3164 writes times without a year, which stay texts.

Source: RFC 3164 §4; RFC 5424 §6; Apache HTTP Server, "Log Files"; systemd.journal-fields(7).
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from contrada.errors import ContradaError, InvalidCellError, ParseError
from contrada.integrations.files.json_objects import decode_object
from contrada.integrations.files.lines import is_utf_8
from contrada.integrations.files.read_options import (
    EPOCHS,
    Converter,
    ReadOptions,
    number_value,
    untyped_value,
)
from contrada.integrations.files.record import Make
from contrada.integrations.files.time_formats import time_value
from contrada.model import Notification, Value

LOG_LINE_SHOWN_MAX: Final = 60
"""Characters of a line of another form in its error. Beyond it: they are cut."""

_QUOTED: Final = r'"(?P<{}>(?:[^"\\]|\\.)*+)"'
_ACCESS: Final = re.compile(
    r"(?P<host>\S+) (?P<ident>\S+) (?P<user>.+?) \[(?P<time>[^\[\]]+)\] "
    + _QUOTED.format("request")
    + r" (?P<status>\S+) (?P<bytes>\S+)"
    + f"(?: {_QUOTED.format('referer')} {_QUOTED.format('agent')})?(?: (?P<rest>.*))?"
)
_REQUEST: Final = re.compile(r"(?P<method>[A-Z]+) (?P<path>\S.*?)(?: (?P<protocol>HTTP/[\d.]+))?")
_PARAMETER: Final = re.compile(r' ([^ =\]"]{1,32})="((?:[^"\\\]]|\\.)*+)"')
_ELEMENT: Final = re.compile(rf'\[([^ =\]"]{{1,32}})((?:{_PARAMETER.pattern})*+)\]')
_STRUCTURED: Final = re.compile(
    r"<(?P<pri>\d{1,3})>[1-9]\d{0,2} (?P<time>\S+) (?P<host>\S+) (?P<app>\S+) (?P<procid>\S+) "
    rf"(?P<msgid>\S+) (?P<data>-|(?:{_ELEMENT.pattern})++)(?: \ufeff?(?P<message>.*))?"
)
_TRADITIONAL: Final = re.compile(
    r"(?:<(?P<pri>\d{1,3})>)?(?P<time>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\S+) "
    r"(?P<host>\S+) (?:(?P<app>[^\s:\[\]]+)(?:\[(?P<procid>[^\]]*)\])?: ?)?(?P<message>.*)"
)
_PRIORITY_MAX: Final = 191
_NUMBERS: Final = ("PRIORITY", "SYSLOG_FACILITY", "SYSLOG_PID", "ERRNO", "CODE_LINE", "LEADER")
_TRUSTED: Final = ("_PID", "_UID", "_GID", "_AUDIT_SESSION", "_AUDIT_LOGINUID", "__SEQNUM")
_TIMES: Final = ("__REALTIME_TIMESTAMP", "_SOURCE_REALTIME_TIMESTAMP")


def log_reader(format_name: str, options: ReadOptions) -> Make:
    """Returns the function that reads a line of a format of `LOG_FORMATS`. It raises ParseError for
    a line of another form, InvalidCellError and InvalidNotificationError.
    """
    return partial(LOG_FORMATS[format_name], options)


def _of_pattern(options: ReadOptions, line: str) -> Notification:
    assert options.pattern is not None, "the format requires it"
    found = re.compile(options.pattern).search(line)
    if found is None:
        raise _other_form(line, "a line that the pattern matches")
    return _notification(_listed(found.groupdict()), options, lambda name: untyped_value)


def _of_access(options: ReadOptions, line: str) -> Notification:
    found = _ACCESS.fullmatch(line)
    if found is None:
        raise _other_form(line, "a line of an access log")
    texts = found.groupdict()
    if request := _REQUEST.fullmatch(texts["request"]):
        texts |= request.groupdict()
    kinds = {"time": time_value, "status": number_value, "bytes": number_value}
    return _notification(_listed(_present(texts)), options, lambda name: kinds.get(name, str))


def _of_syslog(options: ReadOptions, line: str) -> Notification:
    found = _STRUCTURED.fullmatch(line) or _TRADITIONAL.fullmatch(line)
    if found is None:
        raise _other_form(line, "a line of syslog")
    texts = _present(found.groupdict())
    data, priority = texts.pop("data", None), texts.pop("pri", None)
    if priority is not None:
        if int(priority) > _PRIORITY_MAX:
            expected = f"a priority of at most {_PRIORITY_MAX}"
            raise ParseError(1, 2, priority, expected)
        texts |= {"facility": str(int(priority) >> 3), "severity": str(int(priority) & 7)}
    parameters: dict[str, list[str | bytes]] = {}
    for element in _ELEMENT.finditer(data or ""):
        for name, value in _PARAMETER.findall(element[2]):
            text = re.sub(r'\\(["\\\]])', r"\1", value)
            parameters.setdefault(f"{element[1]}.{name}", []).append(text)
    has_year = (texts.get("time") or "")[:1].isdigit()
    kinds: dict[str, Converter] = {"facility": number_value, "severity": number_value}
    if has_year:
        kinds["time"] = time_value
    return _notification(parameters | _listed(texts), options, lambda name: kinds.get(name, str))


def _of_journal(options: ReadOptions, line: str) -> Notification:
    texts = {name: _journal_texts(name, value) for name, value in decode_object(line).items()}
    numbers = dict.fromkeys((*_NUMBERS, *_TRUSTED), number_value)
    kinds: dict[str, Converter] = numbers | dict.fromkeys(_TIMES, EPOCHS["epoch_us"])
    return _notification(texts, options, lambda name: kinds.get(name, str))


def _journal_texts(name: str, value: Any) -> list[str | bytes]:
    """Returns the values of a field: bytes are a list of integers, and null is a value that is too
    long. Raises ParseError for any other value.
    """
    if value is None or isinstance(value, str):
        return [] if value is None else [value]
    if isinstance(value, list) and not all(type(each) is int for each in value):
        return [each for part in value for each in _journal_texts(name, part)]
    if not isinstance(value, list) or not all(0 <= each <= 255 for each in value):
        raise ParseError(1, 1, f"{value!r:.60} in {name!r}", "a text, its bytes, or several")
    held = bytes(value)
    return [held.decode() if is_utf_8(held) else held]


LOG_FORMATS: Final[Mapping[str, Callable[[ReadOptions, str], Notification]]] = {
    "lines": _of_pattern,
    "access": _of_access,
    "syslog": _of_syslog,
    "journald": _of_journal,
}
"""The readers of a line, by format."""


def format_of_line(line: str) -> str | None:
    """Returns the format of a log by its first line: JSON lines, or one of `LOG_FORMATS`."""
    if line.lstrip().startswith("{"):
        return "journald" if '"__REALTIME_TIMESTAMP"' in line else "jsonl"
    if _ACCESS.fullmatch(line):
        return "access"
    found = _STRUCTURED.fullmatch(line) or _TRADITIONAL.fullmatch(line)
    # A time and a word begin the lines of many programs.
    return "syslog" if found and (found["pri"] or found["app"]) else None


def _present(texts: Mapping[str, str | None]) -> dict[str, str | None]:
    return {name: text for name, text in texts.items() if text != "-"}


def _listed(texts: Mapping[str, str | None]) -> dict[str, list[str | bytes]]:
    return {name: [text] for name, text in texts.items() if text is not None}


def _notification(
    texts: Mapping[str, list[str | bytes]], options: ReadOptions, kind: Callable[[str], Converter]
) -> Notification:
    """Returns the notification of named texts; `kind` converts those without a declared type."""
    found: dict[str, Value | list[Value]] = {}
    for own_name, several in texts.items():
        name = options.attribute(own_name)
        if name is None:
            continue
        convert = options.converter(name) if name in options.types else kind(own_name)
        try:
            values = [
                convert(each) if isinstance(each, str) else each
                for each in several
                if isinstance(each, bytes) or not options.is_absent(each)
            ]
        except ContradaError as error:
            raise InvalidCellError(name, error) from None
        if name in found:  # Several names may be renamed to one.
            held = found[name]
            values[:0] = held if isinstance(held, list) else [held]
        if values:
            found[name] = values[0] if len(values) == 1 else values
    return options.notification(found)


def _other_form(line: str, expected: str) -> ParseError:
    return ParseError(1, 1, repr(line[:LOG_LINE_SHOWN_MAX]), expected)
