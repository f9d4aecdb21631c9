"""What a command logs, on standard error: lines for people, or of JSON for programs."""

import logging
from typing import Final

import msgspec

_LEVELS: Final = (logging.WARNING, logging.INFO, logging.DEBUG)


def log(verbosity: int, *, as_json: bool) -> None:
    """Log what this package says from now on; the more, the higher `verbosity` is, up to 2."""
    handler = logging.StreamHandler()
    handler.setFormatter(
        _JsonFormatter() if as_json else logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    )
    logger = logging.getLogger("contrada")
    logger.addHandler(handler)
    logger.setLevel(_LEVELS[min(verbosity, len(_LEVELS) - 1)])


class _JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        told = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(told).decode()
