"""`time_value`: texts that are times, for attributes whose declared type is `time`.

Three formats are recognized, since no text is of two of them: ISO 8601, the dates of mail and RSS,
and those of web servers' access logs. `time:PATTERN` declares a pattern of `strptime` instead.

Source: RFC 5322 §3.3 and §4.3 (RFC 822, with two digits of a year); Apache HTTP Server, "Common Log
Format".
"""

import re
from contextlib import suppress
from datetime import UTC, date, datetime, time
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Final
from zoneinfo import ZoneInfo

from contrada.errors import InputError, InvalidValueError
from contrada.model.domains.values import iso_time

TIME_WITH_ZONE: Final = "a time with a zone, like 2013-01-01T05:00:00Z"
PATTERN_PREFIX: Final = "time:"
"""Begins the declared type of times in a pattern of `strptime`, `time:%d.%m.%Y %H:%M`."""

_LOCAL_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?", re.ASCII)
_TIME: Final = re.compile(_LOCAL_TIME.pattern + r"(Z|[+-]\d\d:?\d\d)", re.ASCII)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
WRITTEN: Final = re.compile(
    r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? +)?(\d{1,2}[ /-](?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep"
    r"|Oct|Nov|Dec)[ /-](?:[1-9]\d{3}|\d\d))[ :](\d\d:\d\d(?::\d\d)?)"
    r"( +(?:[+-]\d{4}|Z|UTC?|GMT|[ECMP][SD]T))?(?: +\([^()]*\))?",
    re.ASCII | re.IGNORECASE,
)
"""A date of RFC 5322, or of an access log: `10/Oct/2000:13:55:36 -0700`."""


def time_value(text: str, *, zone: str | None = None) -> datetime:
    """Declared `time`: ISO 8601, RFC 5322 or the Common Log Format, with a zone; a date alone is
    its midnight in UTC. `zone` is the zone of dates and times without one. An ambiguous local time
    is the first of the two; a local time that the zone skips is refused.
    """
    with suppress(ValueError, OverflowError):  # A 30th of February: the same answer as below.
        if _DATE.fullmatch(text):
            midnight = datetime.combine(date.fromisoformat(text), time())
            return midnight.replace(tzinfo=UTC) if zone is None else in_zone(midnight, zone, text)
        if _TIME.fullmatch(text):
            return iso_time(text).astimezone(UTC)
        if zone is not None and _LOCAL_TIME.fullmatch(text):
            return in_zone(iso_time(text), zone, text)
        if written := WRITTEN.fullmatch(text):
            day, clock, offset = written.groups(default="")
            words = re.sub("[/-]", " ", day)
            # -0000 is a time in UTC of an unknown place; the library gives no zone for it.
            offset = offset.replace("-0000", "+0000")
            return _with_zone(parsedate_to_datetime(f"{words} {clock}{offset}"), zone, text)
    raise _no_time(text, zone)


def pattern_value(text: str, *, pattern: str, zone: str | None = None) -> datetime:
    """Declared `time:PATTERN`: a text that `strptime` reads; `zone` as of `time_value`."""
    try:
        found = datetime.strptime(text, pattern)  # noqa: DTZ007 - `_with_zone` gives it one.
        return _with_zone(found, zone, text)
    except (ValueError, OverflowError):
        raise InvalidValueError(text, f"expected a time as {pattern}") from None


def check_pattern(name: str, declared: str) -> None:
    """Raises InputError for a declared pattern that `strptime` cannot read, for one without a year,
    of which it makes 1900, and for one with the name of a zone, which it reads but ignores.
    """
    pattern = declared.removeprefix(PATTERN_PREFIX)
    bare = pattern.replace("%%", "")
    try:
        if not re.search("%[YyGcx]", bare):
            raise ValueError("without a year")
        example = datetime(2000, 1, 1, tzinfo=UTC).strftime(pattern)
        datetime.strptime(example, pattern)  # noqa: DTZ007 - The zone does not matter.
    except (ValueError, re.error):
        reason = f"attribute {name!r}: found {declared!r}, expected directives of strptime"
        expected = "that have a year, such as time:%d.%m.%Y %H:%M"
        raise InputError("types", f"{reason} {expected}") from None
    if "%Z" in bare:
        reason = f"attribute {name!r}: found %Z in {declared!r}, expected %z or no zone"
        raise InputError("types", reason)


def _with_zone(found: datetime, zone: str | None, text: str) -> datetime:
    if found.tzinfo is not None:
        return found.astimezone(UTC)
    if zone is None:
        raise _no_time(text, zone)
    return in_zone(found, zone, text)


def _no_time(text: str, zone: str | None) -> InvalidValueError:
    return InvalidValueError(text, f"expected {TIME_WITH_ZONE if zone is None else 'a time'}")


@cache
def zone_of(name: str) -> ZoneInfo:
    """Returns the time zone of a name. Raises InputError."""
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        raise InputError("zone", f"found {name!r}, expected a zone as Europe/Rome or UTC") from None


def in_zone(local: datetime, zone: str, text: str) -> datetime:
    """Returns a local time in UTC. Raises InvalidValueError for a time that the zone skips."""
    found = local.replace(tzinfo=zone_of(zone)).astimezone(UTC)
    if found.astimezone(zone_of(zone)).replace(tzinfo=None) != local:
        raise InvalidValueError(text, f"there is no such time in {zone}")
    return found
