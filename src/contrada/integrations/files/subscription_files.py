"""Files of subscriptions: one `name: filter` per line.

    # an operations desk
    late at JFK: kind = 'flight' and dep_delay > 120 and origin = 'JFK'
    gusts:       bulletin.observation.wind_gust > 40

Blank lines and lines that begin with `#` are ignored. A name is any text without a colon, unique in
its file. The filter is in the text syntax, including `or`, and must be satisfiable.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeAlias

from contrada.errors import ContradaError, InputError, ParseError
from contrada.model import Filter, FilterSet, parse
from contrada.service.settings import read_text

NAME_CHARS_MAX: Final = 255
"""Characters of a subscription's name. Beyond it: InputError."""

Subscriptions: TypeAlias = Mapping[str, Filter | FilterSet]


def load_subscriptions(path: Path) -> Subscriptions:
    """Returns the filters of a file; see `read_subscriptions`."""
    return read_subscriptions(read_text(path), str(path))


def read_subscriptions(text: str, source: str) -> Subscriptions:
    """Returns the filters of a text by name, in its order. Raises InputError with line and column
    for the first invalid line, and for a text without any subscription.
    """
    found: dict[str, Filter | FilterSet] = {}
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        before, colon, _ = line.partition(":")
        name = before.strip()
        if not colon or not name:
            reason = f"found {line.strip()[:60]!r}, expected `name: filter`"
            raise InputError(source, reason, number, 1)
        if len(name) > NAME_CHARS_MAX:
            reason = f"a name has at most NAME_CHARS_MAX = {NAME_CHARS_MAX} characters"
            raise InputError(source, reason, number, 1)
        if name in found:
            reason = f"found the name {name!r} again, expected a new one"
            raise InputError(source, reason, number, 1)
        found[name] = _filter(line, len(before) + 1, number, source)
    if not found:
        raise InputError(source, "found no subscription, expected lines of `name: filter`")
    return found


def _filter(line: str, column: int, number: int, source: str) -> Filter | FilterSet:
    # Blanks in place of the name keep the columns of errors those of the file.
    text = " " * column + line[column:]
    if not text.strip():
        raise InputError(source, "found the end of the line, expected a filter", number, column + 1)
    try:
        parsed = parse(text)
    except ParseError as error:
        raise InputError(source, error.what, number, error.column) from None
    except ContradaError as error:
        raise InputError(source, str(error), number, column + 1) from None
    if not isinstance(parsed, Filter | FilterSet):
        reason = "found a pattern, expected a filter"
        raise InputError(source, reason, number, column + 1)
    if parsed.is_empty:
        raise InputError(source, "found a filter that nothing can match", number, column + 1)
    return parsed
