"""Values of databases and files as attribute values.

As in `Notification`, a Decimal, a UUID or a number of NumPy becomes the equal value, a list several
values, an object names joined by dots. Other types of databases are converted like fields of typed
events: a date and a time of day become their ISO text, a duration its microseconds, a Decimal with
more digits than a double the nearest double. A time without a zone is in the zone of its source;
without one it is refused. NULL is absent.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

from contrada.errors import ContradaError, InputError, InvalidValueError
from contrada.integrations.files.time_formats import in_zone
from contrada.model import Notification
from contrada.model.domains.values import Key, key_of, normal

_MICROSECOND: Final = timedelta(microseconds=1)


@contextmanager
def errors_at(place: str, is_known: Callable[[Exception], bool]) -> Iterator[None]:
    """Turns known errors of a driver into InputError with the place."""
    try:
        yield
    except ContradaError:
        raise
    except Exception as error:
        if not is_known(error):
            raise
        raise InputError(place, " ".join(str(error).split())) from error


def value_in(given: Any, zone: str | None) -> Any:
    """Returns the attribute value of a column's value. Raises InvalidValueError."""
    if isinstance(given, datetime):
        if given.tzinfo is not None:
            return given
        if zone is None:
            reason = "a time without a zone: give its source a `zone`, for example zone='UTC'"
            raise InvalidValueError(given, reason)
        return in_zone(given, zone, str(given))
    if isinstance(given, date | time):
        return given.isoformat()
    if isinstance(given, timedelta):
        return given // _MICROSECOND
    if isinstance(given, Decimal):
        try:
            return normal(given)  # type: ignore[arg-type]
        except InvalidValueError:
            return float(given)
    if isinstance(given, dict):
        return {name: value_in(each, zone) for name, each in given.items()}
    if isinstance(given, list | tuple | set | frozenset):
        return [value_in(each, zone) for each in given]
    return given


def key_in(given: Any, zone: str | None) -> Key:
    """Returns the key of a column's plain value. Raises InvalidValueError."""
    return key_of(value_in(given, zone))


def items_of(
    place: str, names: Sequence[str], rows: Iterable[Sequence[Any]], zone: str | None
) -> Iterator[Notification]:
    """Yields the rows of columns. Raises InputError with the place of a bad value."""
    for row in rows:
        try:
            held = zip(names, row, strict=True)
            yield Notification(
                {name: value_in(each, zone) for name, each in held if each is not None}
            )
        except ContradaError as error:
            raise InputError(place, str(error)) from error
