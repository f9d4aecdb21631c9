"""The printer: its output parses to an equal value, in the shortest of several spellings."""

import re
from collections.abc import Iterator
from typing import Final

from contrada.model.algebra.advertisement import Advertisement, Query
from contrada.model.algebra.filter import Filter, FilterSet
from contrada.model.algebra.pattern import Pattern
from contrada.model.algebra.product import ENVELOPE_SETS
from contrada.model.algebra.value_set import ABSENT as ABSENT_SET
from contrada.model.algebra.value_set import ValueSet
from contrada.model.domains import line, values
from contrada.model.domains.line import Cuts, HalfOpen
from contrada.model.domains.values import ABSENT, BOOL, NAN, NULL, NUMBER, TEXT, TIME, UNITS_US, Key
from contrada.model.languages import regex_syntax
from contrada.model.languages.atoms import KEYWORDS
from contrada.model.languages.language import Every, Language, Literal, Pieces

POINTS_PRINTED_MAX: Final = 1_000
"""Single values tried as a complement of a printed set. Beyond it: it is printed another way."""

_PLAIN_NAME: Final = re.compile(r"@?[^\W\d]([\w.\-/:@$#]*[\w$#])?")
_QUOTED: Final = re.compile(r'"([^"\\]|\\.)*"|/([^/\\]|\\.)*/')
_WHOLE: Final = {NUMBER: "<= inf", TIME: "<= @9999-12-31T23:59:59.999999Z", TEXT: '>= ""'}
_FLAGS: Final = re.compile(r"\(\?([imsU]+)\)")
_SLASH: Final = re.compile(r"\\.|/")


def name_text(name: str) -> str:
    """Returns a name in the text syntax: plain, or in backticks."""
    if _PLAIN_NAME.fullmatch(name) and name not in KEYWORDS:
        return name
    return "`" + name.replace("`", "``") + "`"


def filter_text(of: Filter | Query) -> str:
    """Returns a filter's constraints joined by `and`; `everything` without any."""
    named = of.sets.items()
    parts = [f"{name_text(name)} {phrase}" for name, each in named for phrase in _phrases(each)]
    return " and ".join(parts) or "everything"


def filter_set_text(of: FilterSet) -> str:
    """Returns the filters joined by `or`; `nothing` without any."""
    return " or ".join(map(filter_text, of.filters)) or "nothing"


def advertisement_text(of: Advertisement) -> str:
    """Returns the constraints of an advertisement; that attributes may be absent is implied."""
    named = (
        (name, value_set if name in ENVELOPE_SETS else value_set - ABSENT_SET)
        for name, value_set in of.sets.items()
    )
    parts = [f"{name_text(name)} {_as_one(value_set)}" for name, value_set in named]
    return " and ".join(parts) or "everything"


def pattern_text(of: Pattern) -> str:
    """Returns a pattern, with `every`, `by` and `within` if it has them."""
    text = " -> ".join(map(filter_text, of.filters))
    if of.every:
        text = f"every {text}"
    if of.by:
        text += " by " + ", ".join(map(name_text, of.by))
    if of.within_us is not None:
        units = reversed(UNITS_US.items())
        unit, scale = next((u, s) for u, s in units if of.within_us % s == 0)
        text += f" within {of.within_us // scale} {unit}"
    return text


def set_text(of: ValueSet) -> str:
    """Returns a value set as written behind an attribute's name, without parentheses around it."""
    direct = " | ".join(_alternatives(of)) or "nothing"
    if of.text is None:
        return direct
    others = " | ".join(_alternatives(~of))
    inverse = f"~{others}" if _is_phrase(others) else f"~({others})"
    return inverse if len(inverse) < len(direct) else direct


def value_text(key: Key) -> str:
    """Returns a value in the text syntax."""
    tag, comparable = key
    if tag == TEXT:
        return _quoted(comparable)  # type: ignore[arg-type]
    if tag == TIME:
        time = values.datetime_of(comparable)  # type: ignore[arg-type]
        return "@" + time.isoformat().replace("+00:00", "Z")
    if tag == NUMBER:
        return repr(comparable)
    return {NULL: "null", BOOL: "true" if comparable else "false", NAN: "nan"}[tag]


def _phrases(of: ValueSet) -> Iterator[str]:
    """Yields the set as phrases to be joined by `and`: one interval gives two bounds, and so on."""
    alternatives = list(_alternatives(of))
    if len(alternatives) == 1 and of.text is None and len(of.line) == 2:
        both = alternatives[0].startswith("(")
        yield from _bounds(of.line[0][0], next(line.pieces(of.line))) if both else alternatives
    elif (
        not of.line
        and isinstance(of.text, Every)
        and all(isinstance(part, Literal) for part in of.text.parts)
    ):
        for part in of.text.parts:
            yield from _phrases(ValueSet(line.EMPTY, part))
    else:
        yield _as_one(of)


def _as_one(of: ValueSet) -> str:
    text = set_text(of)
    return text if _is_phrase(text) else f"({text})"


def _is_phrase(text: str) -> bool:
    bare = _QUOTED.sub("", text)
    return bool(bare) and bare[0] not in "(~" and " | " not in bare and " & " not in bare


def _alternatives(of: ValueSet) -> Iterator[str]:
    if of.text is not None:
        yield _language_text(of.text)
    if of.line:
        yield from _cuts_text(of.line)


def _cuts_text(cuts: Cuts) -> list[str]:
    """Returns the shorter of two spellings: the included values, or the excluded ones."""
    spellings = [_by_domain(cuts)]
    if len(cuts) & 1:
        present = _complement_text("any but", line.difference(line.PRESENT, cuts))
        if cuts[0] == line.START:
            spellings.append(_complement_text("none of", line.complement(cuts)))
            present = ["absent", *present] if present else []
        spellings.append(present)
    found = [spelling for spelling in spellings if spelling]
    return min(found, key=lambda spelling: len(" | ".join(spelling)))


def _complement_text(words: str, left_out: Cuts) -> list[str]:
    """Returns `any but (…)` or `none of (…)`, if the excluded values are single ones."""
    if not left_out:
        return ["any"] if words == "any but" else ["any", "absent"]
    points = _points(left_out)
    if points is None or any(key[0] == ABSENT for key in points):
        return []
    return [f"{words} ({', '.join(map(value_text, points))})"]


def _points(cuts: Cuts) -> list[Key] | None:
    """Returns the values of a set that has only single ones, neighbours apart; else None."""
    if len(cuts) & 1 or len(cuts) > 2 * POINTS_PRINTED_MAX:
        return None
    found: list[Key] = []
    for start, end in line.pieces(cuts):
        while start != end:
            key = line.first_key(start)
            start = line.cut_after(key)
            if len(found) > POINTS_PRINTED_MAX or (end is not None and start > end):
                return None
            if key[0] in (TEXT, NUMBER, TIME) and start != end:
                return None
            found.append(key)
    return found


def _by_domain(cuts: Cuts) -> list[str]:
    """Yields phrases domain by domain; single values of all domains together at the end."""
    phrases: list[str] = []
    points: list[Key] = []
    for tag in (ABSENT, NULL, BOOL, NUMBER, TIME, TEXT):
        inside = line.intersection(cuts, line.domain(tag))
        if tag == ABSENT:
            phrases += ["absent"] if inside else []
            continue
        if not inside:
            continue
        left_out = _points(line.difference(line.domain(tag), inside))
        if left_out and tag in (NUMBER, TIME, TEXT):
            word = "!= {}" if len(left_out) == 1 else "not in ({})"
            phrases.append(word.format(", ".join(map(value_text, left_out))))
            continue
        for piece in _within_domain(tag, inside):
            key = line.single(piece) if len(piece) == 2 else None
            if key is not None:
                points.append(key)
            else:
                bounds = _bounds(tag, next(line.pieces(piece)))
                phrases.append(bounds[0] if len(bounds) == 1 else f"({' & '.join(bounds)})")
    if points:
        word = "= {}" if len(points) == 1 else "in ({})"
        phrases.append(word.format(", ".join(map(value_text, points))))
    return phrases


def _within_domain(tag: int, inside: Cuts) -> Iterator[Cuts]:
    """Yields the set's pieces; null, bool and NaN value by value."""
    if tag == NUMBER:
        nan = line.intersection(inside, line.point(values.NAN_KEY))
        if nan:
            yield nan
        inside = line.difference(inside, line.point(values.NAN_KEY))
    if tag in (NULL, BOOL):
        for key in _points(inside) or ():
            yield line.point(key)
        return
    for start, end in line.pieces(inside):
        yield (start,) if end is None else (start, end)


def _bounds(tag: int, piece: HalfOpen) -> list[str]:
    """Returns the one or two phrases of an interval of several values."""
    start, end = piece
    if tag == TEXT and len(start) == 2:
        prefix: bytes = start[1]  # type: ignore[assignment]
        if line.starting_with(prefix) == ((start,) if end is None else piece):
            return [f"prefix {_quoted(prefix)}"]
    low = [] if len(start) == 1 else [_bound(start, ">=", ">")]
    high = [] if end is None or len(end) == 1 else [_bound(end, "<", "<=")]
    if low and high and low[0].startswith(">=") and high[0].startswith("<="):
        return [f"between {low[0][3:]} and {high[0][3:]}"]
    return [*low, *high] or [_WHOLE[tag]]


def _bound(cut: Key, word: str, word_before: str) -> str:
    """Returns the bound at a cut, by the value after it or before, whichever is shorter."""
    tag, comparable = cut
    before: int | float | bytes | None = None
    if tag == NUMBER:
        before = values.predecessor(comparable)  # type: ignore[arg-type]
    elif tag == TIME:
        before = comparable - 1  # type: ignore[operator]
    elif isinstance(comparable, bytes) and comparable.endswith(b"\0"):
        before = comparable[:-1]
    spellings = [f"{word} {value_text(cut)}"]
    spellings += [] if before is None else [f"{word_before} {value_text((tag, before))}"]
    return min(spellings, key=len)


def _quoted(text: bytes) -> str:
    """Returns text in quotes if it is plain UTF-8, else as hexadecimal bytes."""
    try:
        characters = text.decode()
    except UnicodeDecodeError:
        return f'x"{text.hex()}"'
    if any(c in "\0\x7f" or (c < " " and c not in "\n\r\t") for c in characters):
        return f'x"{text.hex()}"'
    escaped = characters.replace("\\", "\\\\").replace('"', '\\"')
    for character, letter in (("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        escaped = escaped.replace(character, letter)
    return f'"{escaped}"'


def _language_text(of: Language, *, inner: bool = False) -> str:
    if isinstance(of, Pieces):
        text = " | ".join(_cuts_text(of.cuts)) or "nothing"
        return f"({text})" if inner and (" | " in text or " & " in text) else text
    if isinstance(of, Literal):
        operator, constant = of.atom
        value = _expression_text(constant) if operator == "matches" else _quoted(constant)
        if operator == "= nocase":
            return f"{'=' if of.positive else '!='} nocase {value}"
        return f"{operator} {value}" if of.positive else f"not {operator} {value}"
    joiner = " & " if isinstance(of, Every) else " | "
    text = joiner.join(_language_text(part, inner=True) for part in of.parts)
    return f"({text})" if inner else text


def _expression_text(constant: bytes) -> str:
    """Returns a regular expression between slashes, its flags behind."""
    pattern = regex_syntax.normal(constant.decode())
    flags = _FLAGS.match(pattern)
    body = pattern[flags.end() :] if flags else pattern
    escaped = _SLASH.sub(lambda match: "\\/" if match[0] == "/" else match[0], body)
    return f"/{escaped}/{flags[1] if flags else ''}"
