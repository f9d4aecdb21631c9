"""`where`: filters to a SQL condition with parameters, for SQLite, DuckDB and PostgreSQL.

A column holds the values of the attribute of its name, all of one domain, and NULL if the attribute
is absent. So constraints on other domains are omitted. Numbers are integers or doubles (never NaN,
which SQLite turns into NULL), truth values are `BOOLEAN`, or 0 and 1, times are whole microseconds
since 1970 in UTC, and text is UTF-8 in the order of code points (in PostgreSQL the collation `C`;
elsewhere the default), without the character NUL. Integers beyond 2^53 compare exactly with doubles
only if the database does so, as SQLite does.

LIKE must distinguish case; in SQLite, where it does not, GLOB takes its place. Operators without
such a form, and constants that are not UTF-8, are refused.
"""

import re
from bisect import bisect_left
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from contrada.errors import InvalidFilterError
from contrada.integrations.dialects.sql.sql_reader import refusal
from contrada.model.algebra.filter import Filter, FilterSet
from contrada.model.algebra.value_set import ABSENT, ValueSet
from contrada.model.domains import line, values
from contrada.model.domains.line import Cut, Cuts, HalfOpen
from contrada.model.domains.values import BOOL, NUMBER, TEXT, TIME, Key
from contrada.model.languages import language
from contrada.model.languages.language import Every, Language, Pieces
from contrada.model.languages.wildcard import tokens_of

ColumnKind: TypeAlias = Literal["boolean", "number", "time", "text"]
"""The domain of a column."""

Parameter: TypeAlias = bool | int | float | str

NO_COLUMN: Final = "an attribute without a column"
OPERATOR: Final = "an operator that SQL has not"
NOT_TEXT: Final = "bytes that are no text"

KINDS: Final[Mapping[int, ColumnKind]] = {
    BOOL: "boolean",
    NUMBER: "number",
    TIME: "time",
    TEXT: "text",
}
"""The kind of a column for the values of each domain."""

_TAGS: Final = {kind: tag for tag, kind in KINDS.items()}

SqlBound: TypeAlias = tuple[str, int | float | str]
"""A SQL operator and the value on its right side."""

NOWHERE: Final[SqlBound] = ("", "")
"""Beyond all text."""

_CODES: Final = 0x110000


class Clause(NamedTuple):
    """A condition, with `?` for each parameter, and the parameters in their order."""

    text: str
    parameters: tuple[Parameter, ...] = ()


TRUE: Final = Clause("1 = 1")
FALSE: Final = Clause("1 = 0")


class TypedColumn(NamedTuple):
    """A column's name as written, its domain, and whether the database is SQLite."""

    text: str
    tag: int
    sqlite: bool

    def compare(self, how: str, value: Parameter) -> Clause:
        """Compares the column with a parameter."""
        return Clause(f"{self.text} {how} ?", (value,))

    def is_there(self) -> Clause:
        """Matches every value but NULL."""
        return Clause(f"{self.text} IS NOT NULL")


def where(
    of: Filter | FilterSet,
    columns: Mapping[str, ColumnKind],
    *,
    sqlite: bool = False,
    collation: str = "",
) -> Clause:
    """Returns the condition that is true for exactly the rows that the filters match.

    `columns` gives the domain of each attribute's column, `collation` a collation for text if the
    columns have another. Cost: linear. Raises RefusedRuleError.
    """
    suffix = f" COLLATE {quote(collation)}" if collation else ""
    known = {
        name: TypedColumn(quote(name) + suffix * (kind == "text"), _TAGS[kind], sqlite)
        for name, kind in columns.items()
    }
    clauses: list[Clause] = []
    for each in of.filters:
        for name in each.sets:
            if name not in known:
                raise refusal(NO_COLUMN, name)
        clauses.append(all_of([_constraint(known[name], held) for name, held in each.sets.items()]))
    return any_of(clauses)


def quote(name: str) -> str:
    """Returns a quoted SQL name."""
    return '"' + name.replace('"', '""') + '"'


def _constraint(column: TypedColumn, held: ValueSet) -> Clause:
    """Returns the values in the column's domain, or the absence, of one attribute."""
    canonical = held.canonical()
    if column.tag == TEXT and canonical.text is not None:
        present = _language(column, canonical.text)
    else:
        domain = line.domain(column.tag)
        if column.tag == NUMBER:
            domain = line.difference(domain, line.point(values.NAN_KEY))
        present = _intervals(column, domain, line.intersection(canonical.line, domain))
    if not line.overlaps(held.line, ABSENT.line):
        return present
    if present == column.is_there():
        return TRUE
    return any_of([Clause(f"{column.text} IS NULL"), present])


def _language(column: TypedColumn, of: Language) -> Clause:
    """Returns text that is in a language. It never matches a row with NULL in the column."""
    if isinstance(of, Pieces):
        return _intervals(column, line.ALL_TEXT, of.cuts)
    if isinstance(of, language.Literal):
        return _shape(column, of)
    parts = [_language(column, part) for part in of.parts]
    return all_of(parts) if isinstance(of, Every) else any_of(parts)


def _intervals(column: TypedColumn, domain: Cuts, inside: Cuts) -> Clause:
    """Returns intervals of one domain; single values are grouped, and small complements negated."""
    if inside == domain:
        return column.is_there()
    pieces = list(line.pieces(inside))
    left_out = list(line.pieces(line.difference(domain, inside)))
    if len(left_out) < len(pieces) and all(map(_single, left_out)):
        return _list_values(column, "NOT IN", left_out) or column.is_there()
    parts = [_interval(column, piece) for piece in pieces if not _single(piece)]
    listed = _list_values(column, "IN", pieces)
    return any_of([*parts, listed] if listed else parts)


def _single(piece: HalfOpen) -> Key | None:
    """Returns the only value of an interval, None if it has several."""
    return line.single(tuple(cut for cut in piece if cut is not None))


def _list_values(column: TypedColumn, words: str, pieces: list[HalfOpen]) -> Clause | None:
    """Returns the single values, None if empty; no column holds bytes that are not text."""
    held: list[Any] = []
    for key in filter(None, map(_single, pieces)):
        with suppress(UnicodeDecodeError):
            held.append(key[1].decode() if isinstance(key[1], bytes) else key[1])
    if not held:
        return None
    if len(held) == 1:
        return column.compare({"IN": "=", "NOT IN": "<>"}[words], held[0])
    return Clause(f"{column.text} {words} ({', '.join('?' * len(held))})", tuple(held))


def _interval(column: TypedColumn, piece: HalfOpen) -> Clause:
    low, high = lower_bound(piece[0]), upper_bound(piece[1])
    if low is NOWHERE:
        return FALSE
    ends = [end for end in (low, high) if end is not None and end is not NOWHERE]
    compared = [column.compare(how, value) for how, value in ends]
    return all_of(compared) if ends else column.is_there()


_SHAPES: Final = {"suffix": "*{}", "contains": "*{}*", "wildcard": "{}"}
_GLOB: Final = {"*": "*", "?": "?", "\\*": "[*]", "\\?": "[?]", "[": "[[]", "\\\\": "\\"}
_LIKE: Final = {"*": "%", "?": "_", "\\*": "*", "\\?": "?", "%": "\\%", "_": "\\_", "\\\\": "\\\\"}
"""The parts of wildcards in patterns of each database."""


def _shape(column: TypedColumn, of: language.Literal) -> Clause:
    """Returns a suffix, a substring or a wildcard as a pattern of the database."""
    operator, constant = of.atom
    if operator not in _SHAPES:
        raise refusal(OPERATOR, operator)
    if operator != "wildcard":
        constant = _SHAPES[operator].encode().replace(b"{}", _SPECIAL.sub(rb"\\\g<0>", constant))
    try:
        tokens = tokens_of(constant)
    except InvalidFilterError:
        raise refusal(NOT_TEXT, constant) from None
    if "\0" in tokens:
        raise refusal(NOT_TEXT, constant)
    written = _GLOB if column.sqlite else _LIKE
    pattern = "".join(written.get(each, each) for each in tokens)
    negative = "" if of.positive else "NOT "
    if column.sqlite:
        return column.compare(f"{negative}GLOB", pattern)
    clause = column.compare(f"{negative}LIKE", pattern)
    return Clause(f"{clause.text} ESCAPE '\\'", clause.parameters)


_SPECIAL: Final = re.compile(rb"[*?\\]")


def all_of(parts: list[Clause]) -> Clause:
    """Returns the conjunction of the conditions; without parts true."""
    held = [part for part in parts if part != TRUE]
    if FALSE in held:
        return FALSE
    is_several = len(held) > 1
    texts = [f"({part.text})" if is_several and " OR " in part.text else part.text for part in held]
    return Clause(" AND ".join(texts), _parameters(held)) if held else TRUE


def any_of(parts: list[Clause]) -> Clause:
    """Returns the disjunction of the conditions; without parts false."""
    held = [part for part in parts if part != FALSE]
    if TRUE in held:
        return TRUE
    text = " OR ".join(part.text for part in held)
    return Clause(text, _parameters(held)) if held else FALSE


def _parameters(of: list[Clause]) -> tuple[Parameter, ...]:
    return tuple(value for part in of for value in part.parameters)


# --- ends of intervals ------------------------------------------------------------------------
# Those of text are bytes, and SQL text is UTF-8. If an end is not, the text behind it is taken.


def lower_bound(start: Cut) -> SqlBound | None:
    """Returns `>= v` or `> u`, the shorter; None at the beginning of a domain."""
    return _bound(start, ">=", ">")


def upper_bound(end: Cut | None) -> SqlBound | None:
    """Returns `< v` or `<= u`, the shorter; None at the end of a domain."""
    return _bound(end, "<", "<=")


def _bound(cut: Cut | None, from_here: str, from_before: str) -> SqlBound | None:
    """Returns the comparison with the value at a cut, or with the one just before it."""
    if cut is None or len(cut) == 1:
        return None
    tag, at = cut
    if not isinstance(at, bytes):
        before = at - 1 if tag == TIME else values.predecessor(at)
        if before is None or len(repr(before)) >= len(repr(at)):
            return from_here, at
        return from_before, before
    if at.endswith(b"\0"):
        with suppress(UnicodeDecodeError):
            return from_before, at[:-1].decode()
    text = _text_from(at)
    return NOWHERE if text is None else (from_here, text)


def _text_from(bound: bytes) -> str | None:
    """Returns the first UTF-8 text that is not below some bytes; None if all are below."""
    try:
        return bound.decode()
    except UnicodeDecodeError as error:
        good, rest = bound[: error.start].decode(), bound[error.start :]
    # A surrogate becomes the bytes between its neighbours.
    first = bisect_left(
        range(_CODES), rest, key=lambda code: chr(code).encode(errors="surrogatepass")
    )
    while first == _CODES:
        if not good:
            return None
        good, first = good[:-1], ord(good[-1]) + 1
    return good + chr(0xE000 if 0xD800 <= first <= 0xDFFF else first)
