"""The log of a command, on standard error: lines for people, or JSON for programs.

A log call has a text with named parts, and a mapping of their values; so one call serves people and
programs. docs/operations.md lists the names; a test holds that there are no others.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import is_dataclass
from datetime import UTC, datetime
from typing import Any, Final

import click
import msgspec

from contrada.errors import ContradaError

_LEVELS: Final = (logging.WARNING, logging.INFO, logging.DEBUG)

_NAMED: Final = re.compile(r"%\((\w+)\)[-+ #0-9.]*[a-zA-Z]")

_BELOW: Final = ("asyncio", "uvicorn", "websockets")


def log(verbosity: int, *, as_json: bool) -> None:
    """Configures the log, also of warnings of libraries; `verbosity` is 0 to 2."""
    handler = logging.StreamHandler()
    handler.setFormatter(
        JsonFormatter() if as_json else TextFormatter("%(asctime)s %(levelname)s %(message)s")
    )
    for name in ("contrada", *_BELOW):
        logging.getLogger(name).addHandler(handler)
    logging.getLogger("contrada").setLevel(_LEVELS[min(verbosity, len(_LEVELS) - 1)])


def _begin(_: click.Context, __: click.Parameter, as_json: bool) -> None:
    if as_json:
        log(0, as_json=True)


log_option: Final = click.option(
    "--log-json",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_begin,
    help="Log JSON lines on standard error.",
)


def log_line(level: str, logger: str, event: str, fields: Mapping[str, Any]) -> str:
    """Returns the JSON log line of an event that happened now."""
    return _encoded(datetime.now(UTC), level, logger, event, event, fields)


def escape_controls(text: str) -> str:
    """Returns a text with escapes for characters that could control a terminal, or hide others."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


class TextFormatter(logging.Formatter):
    """One line per message: the text of a client cannot forge another, or control a terminal."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - its name there
        """Formats one line, with escapes for control characters."""
        record.message = escape_controls(record.message)
        return super().formatMessage(record)


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, event, message, and the event's own keys."""

    def format(self, record: logging.LogRecord) -> str:
        """Formats one line. Cost: that of the message, and of each value as text."""
        fields = dict(record.args) if isinstance(record.args, Mapping) else {}
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return _encoded(
            datetime.fromtimestamp(record.created, UTC),
            record.levelname.lower(),
            record.name,
            _NAMED.sub(r"{\1}", str(record.msg)),
            record.getMessage(),
            fields,
        )


def _encoded(
    at: datetime, level: str, logger: str, event: str, message: str, fields: Mapping[str, Any]
) -> str:
    time = at.isoformat(timespec="microseconds").replace("+00:00", "Z")
    begin = {"time": time, "level": level, "logger": logger, "event": event, "message": message}
    own = {name: _plain(each) for name, each in fields.items()}
    return msgspec.json.encode(begin | own).decode()


def _plain(value: object) -> object:
    if value is None or isinstance(value, str | int | float | bool) or is_dataclass(value):
        return value
    if isinstance(value, BaseException) and not isinstance(value, ContradaError):
        return repr(value)
    return str(value)
