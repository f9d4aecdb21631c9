"""`SigmaValue`: the values of Sigma rules with their modifiers, and their value sets.

A text is a sequence of literal parts and wildcards; `*` matches any text, also none, and `?` one
character. A backslash escapes a wildcard or another backslash; before any other character it is a
plain backslash.

A number equals its shortest text, and so do true and false, since event logs are not strict about
this (see docs/dialects.md). `'1.0'`, which may be a version, accepts no number. Parts of texts,
patterns and networks apply to texts only, orders to numbers only. A lone `*` accepts every present
value. `null` accepts null and absence. References to other fields and parts of times are no sets;
`sigma_residue` compares them.

Source: Sigma specification 2.1.0, sections on escaping and special values; appendix modifiers.
"""

import re
from base64 import b64encode
from codecs import BOM_UTF16_LE
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from functools import partial
from itertools import groupby, product
from typing import Final, NamedTuple, TypeAlias, cast

from contrada.errors import InvalidFilterError, LimitError, RefusedRuleError
from contrada.integrations.dialects.sigma import sigma_refusals as refusals
from contrada.integrations.dialects.sigma.sigma_refusals import refusal
from contrada.integrations.dialects.yaml_documents import Document
from contrada.model.algebra import sets
from contrada.model.algebra.value_set import ABSENT, PRESENT, ValueSet
from contrada.model.domains.values import INT_MAX, INT_MIN, plain_number
from contrada.model.languages.regex_syntax import repeats_in

SPELLED_BYTES_MAX: Final = 300_000
"""Bytes of the further texts that `windash`, `expand`, `base64offset` and pipelines make of a Sigma
rule's values. Beyond it: the rule is refused."""

VALUES_CHARACTERS_MAX: Final = 1_000_000
"""Characters of a Sigma rule's values; those that YAML aliases repeat count each time. Beyond
it: the rule is refused."""

EXPRESSIONS_SIZE_MAX: Final = 10_000
"""Characters, and counts `{…}`, of a Sigma rule's expressions. Beyond it: the rule is refused."""


class WildcardSign(Enum):
    """A wildcard in a text."""

    ANY = "*"
    ONE = "?"


class Placeholder(NamedTuple):
    """A placeholder that has no values yet."""

    name: str


WildcardText: TypeAlias = tuple[bytes | WildcardSign | Placeholder, ...]
"""Literal parts, wildcards and placeholders; no two literal parts are adjacent."""


class Text(NamedTuple):
    """A text, with all modifiers applied."""

    parts: WildcardText
    cased: bool = False


class Scalar(NamedTuple):
    """A number, a truth value or null."""

    value: int | float | None
    cased: bool = False


class FieldReference(NamedTuple):
    """The value of another field, with the text modifiers to apply to it."""

    field: str
    changes: tuple[str, ...] = ()
    cased: bool = False


class TimePart(NamedTuple):
    """A part of a time, and the numbers that it may be; `shown` is the form in the rule."""

    unit: str
    numbers: ValueSet
    shown: str


SigmaValue: TypeAlias = Text | Scalar | FieldReference | TimePart | ValueSet
"""A value of a rule; one of a pattern, a network, an order or presence is a set."""

Placeholders: TypeAlias = Mapping[str, Sequence[str]]
"""The values of each placeholder, as written in a rule."""


class Spelling:
    """The placeholders of one rule, and the use of each of its limits."""

    def __init__(self, placeholders: Placeholders) -> None:
        self.placeholders = placeholders
        self._used: Counter[str] = Counter()

    def use(self, limit: str, maximum: int, amount: int) -> None:
        """Counts an amount. Raises LimitError if all of them together are above the maximum."""
        self._used[limit] += amount
        if self._used[limit] > maximum:
            raise LimitError(limit, maximum)


_TextModifier: TypeAlias = Callable[[WildcardText, Placeholders], Iterator[WildcardText]]
_ValueModifier: TypeAlias = Callable[[Document, Sequence[str], Spelling], SigmaValue]

_WRITTEN: Final = re.compile(r"\\([\\*?])|([*?])", re.DOTALL)
_DASH: Final = re.compile(r"\B[-/–—―]\b")
_DASHES: Final[tuple[WildcardText, ...]] = tuple((each.encode(),) for each in "-/–—―")
_PLACEHOLDER: Final = re.compile(r"\\%|%(\w+)%")
_SHOWN_NUMBER: Final = re.compile(r"-?[0-9]{1,19}(\.[0-9]{1,19})?")
_ESCAPED: Final = re.compile(rb"([\\*?])")
_TRUTH: Final = {"true": True, "false": False}


def text_of(written: str) -> WildcardText:
    """Returns the text of a written value."""
    # It is split into literals, each followed by an escaped sign or a wildcard.
    pieces = [
        (place % 3 == 2, piece) for place, piece in enumerate(_WRITTEN.split(written)) if piece
    ]
    return join_parts(
        WildcardSign(piece) if is_sign else piece.encode() for is_sign, piece in pieces
    )


def plain_of(text: WildcardText) -> str:
    """Returns a text with its wildcards and placeholders, for people and for expressions."""
    return "".join(plain_part(part) for part in text)


def plain_part(part: bytes | WildcardSign | Placeholder) -> str:
    """Returns a part of a text; wildcards in literal parts are escaped."""
    if isinstance(part, Placeholder):
        return f"%{part.name}%"
    if isinstance(part, WildcardSign):
        return part.value
    return re.sub(r"([*?])", r"\\\1", part.decode("utf-8", "surrogateescape"))


def equal(value: str | int | float, *, cased: bool = False) -> ValueSet:
    """Returns the values equal to a literal: texts, and the number or truth value of a text."""
    if isinstance(value, str):
        meant = _shown_value(value if cased else value.lower())
        same = sets.eq(value, nocase=not cased)
        return same if meant is None else same | sets.eq(meant)
    number = plain_number(value) if isinstance(value, float) else value
    shown = str(number).lower() if isinstance(number, bool) else str(number)
    return sets.eq(number) | sets.eq(shown, nocase=not cased)


def read_value(
    value: Document, modifiers: Sequence[str], spelling: Spelling, place: str
) -> tuple[SigmaValue, ...]:
    """Returns a value of a rule, with modifiers: one of several must match, if it is ambiguous.

    Raises RefusedRuleError with the place, and LimitError.
    """
    with placed(value, place):
        characters = len(value) if isinstance(value, str) else 1
        spelling.use("VALUES_CHARACTERS_MAX", VALUES_CHARACTERS_MAX, characters)
        return _read(value, modifiers, spelling)


@contextmanager
def placed(value: object, place: str) -> Iterator[None]:
    """Adds the value and its place to errors."""
    try:
        yield
    except InvalidFilterError as error:
        raise refusal(refusals.PATTERN, f"{error.reason}: {value}", place) from None
    except RefusedRuleError as error:
        found = value if error.found is None else error.found
        raise refusal(error.reason, found, error.place or place) from None


def set_of(value: Text | Scalar | ValueSet) -> ValueSet:
    """Returns the set of a value. Raises InvalidFilterError, RefusedRuleError without a place."""
    if isinstance(value, Text):
        return _match_set(value.parts, cased=value.cased)
    if isinstance(value, Scalar):
        if value.value is None:
            return ABSENT | sets.eq(None)
        return equal(value.value, cased=value.cased)
    return value


def _read(value: Document, modifiers: Sequence[str], spelling: Spelling) -> tuple[SigmaValue, ...]:
    modifiers = [_LONG_FLAGS.get(each, each) for each in modifiers]
    for each in modifiers:
        if not any(each in known for known in (_KINDS, _CHANGES, _OTHERS, TIME_PARTS)):
            raise refusal(refusals.MODIFIER, each)
    if len({*modifiers}) < len(modifiers):  # encoded often, a text would grow without bounds
        raise refusal(refusals.MODIFIERS, "|".join(modifiers))
    if modifiers and modifiers[0] in TIME_PARTS:
        return (_time_part(value, modifiers),)
    kind = _KINDS.get(modifiers[0]) if modifiers else None
    if kind is not None:
        if len(modifiers) > 1 and modifiers[0] not in ("re", "fieldref"):
            raise refusal(refusals.MODIFIERS, "|".join(modifiers))
        return (kind(value, modifiers[1:], spelling),)
    cased = "cased" in modifiers
    changes = [each for each in modifiers if each != "cased"]
    if isinstance(value, str):
        try:
            texts = modify(text_of(value), changes, spelling)
        except UnicodeEncodeError:
            raise refusal(refusals.VALUE) from None
        return tuple(Text(text, cased) for text in texts)
    if changes or isinstance(value, list | dict):
        raise refusal(refusals.VALUE, value)
    return (Scalar(None if value is None else _number(value), cased),)


def _shown_value(shown: str) -> int | float | None:
    """Returns the number or truth value of its shortest text."""
    if shown in _TRUTH:
        return _TRUTH[shown]
    if not _SHOWN_NUMBER.fullmatch(shown):
        return None
    number = plain_number(float(shown)) if "." in shown else int(shown)
    return number if str(number) == shown and INT_MIN <= number <= INT_MAX else None


def _number(value: object) -> int | float:
    if isinstance(value, float) and value == value:
        return value
    if isinstance(value, int) and INT_MIN <= value <= INT_MAX:
        return value
    raise refusal(refusals.VALUE, value)


def _match_set(text: WildcardText, *, cased: bool) -> ValueSet:
    if text and set(text) == {WildcardSign.ANY}:
        return PRESENT
    literal = literal_of(text)
    try:
        if literal is not None:
            return equal(literal.decode(), cased=cased)
        pattern = b"".join(map(_pattern_of, text))
        return sets.wildcard(pattern.decode(), nocase=not cased)
    except UnicodeDecodeError:
        raise refusal(refusals.VALUE) from None


def _pattern_of(part: bytes | WildcardSign | Placeholder) -> bytes:
    if isinstance(part, Placeholder):
        raise refusal(refusals.PLACEHOLDER, part.name)
    return part.value.encode() if isinstance(part, WildcardSign) else _ESCAPED.sub(rb"\\\1", part)


# --- modifiers of texts -------------------------------------------------------------------------


def modify(text: WildcardText, changes: Sequence[str], spelling: Spelling) -> list[WildcardText]:
    """Returns the texts that modifiers make of a text. Raises RefusedRuleError, LimitError."""
    texts = [text]
    for name in changes:
        change = _CHANGES.get(name)
        if change is None:
            raise refusal(refusals.MODIFIERS, name)
        made: list[WildcardText] = []
        for each in texts:
            for number, other in enumerate(change(each, spelling.placeholders)):
                if number:
                    size = sum(len(part) for part in other if isinstance(part, bytes))
                    spelling.use("SPELLED_BYTES_MAX", SPELLED_BYTES_MAX, size + len(other) + 1)
                made.append(other)
        texts = made
    return texts


def _surround(
    text: WildcardText, _: Placeholders, *, before: bool, behind: bool
) -> Iterator[WildcardText]:
    """Yields the text with any text before it, or behind it, or both."""
    any_text = (WildcardSign.ANY,)
    yield join_parts((*any_text * before, *text, *any_text * behind))


def _windash(text: WildcardText, _: Placeholders) -> Iterator[WildcardText]:
    """Yields texts with every possible sign for each dash or slash that may begin an option."""
    return _replace_each(text, _DASH, lambda found: _DASHES)


def _expand(text: WildcardText, placeholders: Placeholders) -> Iterator[WildcardText]:
    """Yields texts with every value for each placeholder; an escaped percent sign is one."""

    def values(found: re.Match[str]) -> Iterable[WildcardText]:
        if found[0] == "\\%":
            return [(b"%",)]
        if found[1] not in placeholders:
            return [(Placeholder(found[1]),)]
        return [text_of(value) for value in placeholders[found[1]]]

    return _replace_each(text, _PLACEHOLDER, values)


def _replace_each(
    text: WildcardText,
    pattern: re.Pattern[str],
    alternatives: Callable[[re.Match[str]], Iterable[WildcardText]],
) -> Iterator[WildcardText]:
    """Yields texts with every alternative for each match in the literal parts."""
    choices: list[Iterable[WildcardText]] = []
    for part in text:
        if not isinstance(part, bytes):
            choices.append([(part,)])
            continue
        literal, at = part.decode("utf-8", "surrogateescape"), 0
        for found in pattern.finditer(literal):
            choices.append([_literal(literal[at : found.start()])])
            choices.append(alternatives(found))
            at = found.end()
        choices.append([_literal(literal[at:])])
    for chosen in product(*choices):
        yield join_parts(part for each in chosen for part in each)


def _base64(text: WildcardText, _: Placeholders) -> Iterator[WildcardText]:
    yield (b64encode(_whole(text)),)


def _base64_anywhere(text: WildcardText, _: Placeholders) -> Iterator[WildcardText]:
    """Yields the Base64 forms at each offset, without characters that depend on the rest."""
    literal = _whole(text)
    for before in range(3):
        encoded = b64encode(b"\0" * before + literal)
        seen = encoded[(0, 2, 3)[before] : (None, -3, -2)[(before + len(literal)) % 3]]
        if not seen:
            raise refusal(refusals.VALUE)
        yield (seen,)


def _utf16(
    text: WildcardText, _: Placeholders, *, codec: str, mark: bytes = b""
) -> Iterator[WildcardText]:
    try:
        encoded = [p.decode().encode(codec) if isinstance(p, bytes) else p for p in text]
    except UnicodeDecodeError:
        raise refusal(refusals.MODIFIERS, codec) from None
    yield join_parts((mark, *encoded))


def _whole(text: WildcardText) -> bytes:
    literal = literal_of(text)
    if literal is None:
        unknown = [part.name for part in text if isinstance(part, Placeholder)]
        raise refusal(refusals.PLACEHOLDER, unknown[0]) if unknown else refusal(refusals.VALUE)
    return literal


def literal_of(text: WildcardText) -> bytes | None:
    """Returns the literal of a text without wildcards, else None."""
    literals = [part for part in text if isinstance(part, bytes)]
    return b"".join(literals) if len(literals) == len(text) else None


def _literal(text: str) -> WildcardText:
    return (text.encode("utf-8", "surrogateescape"),)


def join_parts(parts: Iterable[bytes | WildcardSign | Placeholder]) -> WildcardText:
    """Returns the parts as a text: adjacent literals are joined, empty ones removed."""
    text: list[bytes | WildcardSign | Placeholder] = []
    for is_literal, group in groupby(parts, lambda part: isinstance(part, bytes)):
        if is_literal:
            literal = b"".join(cast(Iterator[bytes], group))
            text += [literal] if literal else []
        else:
            text += group
    return tuple(text)


# --- other kinds of values ----------------------------------------------------------------------


def _exists(value: Document, *_: object) -> ValueSet:
    if not isinstance(value, bool):
        raise refusal(refusals.VALUE, value)
    return PRESENT if value else ABSENT


def _network(value: Document, *_: object) -> ValueSet:
    if not isinstance(value, str):
        raise refusal(refusals.VALUE, value)
    return sets.cidr(value)


def _regular(value: Document, rest: Sequence[str], spelling: Spelling) -> ValueSet:
    if not set(rest) <= _FLAGS:
        raise refusal(refusals.MODIFIERS, "|".join(("re", *rest)))
    if not isinstance(value, str):
        raise refusal(refusals.VALUE, value)
    size = len(value) + repeats_in(value)
    spelling.use("EXPRESSIONS_SIZE_MAX", EXPRESSIONS_SIZE_MAX, size)
    flags = "".join(sorted(set(rest)))
    return sets.matches(f"(?{flags}){value}" if flags else value)


def _order(build: Callable[[int | float], ValueSet], value: Document, *_: object) -> ValueSet:
    if isinstance(value, bool):
        raise refusal(refusals.VALUE, value)
    return build(_number(value))


def _field(value: Document, rest: Sequence[str], _: Spelling) -> FieldReference:
    changes = tuple(each for each in rest if each != "cased")
    if not set(changes) <= _ON_FIELDS:
        raise refusal(refusals.MODIFIERS, "|".join(("fieldref", *rest)))
    literal = literal_of(text_of(value)) if isinstance(value, str) else None
    if not literal:
        raise refusal(refusals.VALUE, value)
    return FieldReference(literal.decode(), changes, cased="cased" in rest)


def _time_part(value: Document, modifiers: Sequence[str]) -> TimePart:
    unit, *rest = modifiers
    if len(rest) > 1 or not set(rest) <= _ORDERS.keys():
        raise refusal(refusals.MODIFIERS, "|".join(modifiers))
    if not isinstance(value, int) or isinstance(value, bool):
        raise refusal(refusals.VALUE, value)
    number = _number(value)
    numbers = _ORDERS[rest[0]](number) if rest else sets.eq(number)
    return TimePart(unit, numbers, f"{'|'.join(modifiers)}: {number}")


_ORDERS: Final = {"lt": sets.lt, "lte": sets.le, "gt": sets.gt, "gte": sets.ge}

_KINDS: Final[Mapping[str, _ValueModifier]] = {
    "exists": _exists,
    "cidr": _network,
    "re": _regular,
    "fieldref": _field,
    **{name: partial(_order, build) for name, build in _ORDERS.items()},
}
"""Modifiers that determine the kind of a value. They must be first."""

_FLAGS: Final = frozenset("ims")
_LONG_FLAGS: Final = {"ignorecase": "i", "multiline": "m", "dotall": "s"}
_ON_FIELDS: Final = frozenset(("contains", "startswith", "endswith"))

TIME_PARTS: Final = frozenset(("minute", "hour", "day", "week", "month", "year"))
"""Modifiers that take a part of a time. They must be first."""

_CHANGES: Final[Mapping[str, _TextModifier]] = {
    "contains": partial(_surround, before=True, behind=True),
    "startswith": partial(_surround, before=False, behind=True),
    "endswith": partial(_surround, before=True, behind=False),
    "windash": _windash,
    "expand": _expand,
    "base64": _base64,
    "base64offset": _base64_anywhere,
    "utf16le": partial(_utf16, codec="utf-16-le"),
    "wide": partial(_utf16, codec="utf-16-le"),
    "utf16be": partial(_utf16, codec="utf-16-be"),
    "utf16": partial(_utf16, codec="utf-16-le", mark=BOM_UTF16_LE),
}
"""Modifiers that change texts, in the order of the rule."""

_OTHERS: Final = _FLAGS | {"cased"}
