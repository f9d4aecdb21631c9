"""Values of Sigma rules, what modifiers make of them, and the value set that each one is.

A text is a sequence of literal parts and wildcards; `*` stands for any text, also none, and `?`
for one character. A backslash takes the meaning from a wildcard or a backslash behind it, before
anything else it is a plain backslash.

Texts compare without case, by the folding of `nocase`; with `cased` they compare as they are.
A number and the text that shows it are equal, and so are true and false: what writes events is
not strict about it. A number is shown as it is written shortest, 1.0 as `1`, as in pySigma. So a
number in a rule accepts that text too, and a text that is the shortest of a number that number;
`'1.0'`, which may be a version, accepts no number. Parts of texts, patterns and networks are
looked for in texts only, orders hold between numbers only. A lone `*` accepts every present
value. `null` accepts null and absence.

Source: Sigma specification 2.1.0, sections on escaping and special values; appendix modifiers.
"""

import re
from base64 import b64encode
from codecs import BOM_UTF16_LE
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import groupby, product
from typing import Final, TypeAlias, cast

from contrada.errors import InvalidFilterError, LimitError, RefusedRuleError
from contrada.integrations.dialects.sigma import sigma_refusals
from contrada.integrations.dialects.sigma.sigma_refusals import refused
from contrada.integrations.dialects.yaml_documents import Document
from contrada.model.algebra import sets
from contrada.model.algebra.value_set import ABSENT, PRESENT, ValueSet, union
from contrada.model.domains.values import INT_MAX, INT_MIN, plain_number
from contrada.model.languages.regex_syntax import repeats_in

SPELLED_BYTES_MAX: Final = 300_000
"""Bytes of the further texts that `windash`, `expand` and `base64offset` make of a Sigma rule's
values. Beyond it: the rule is refused."""

VALUES_CHARACTERS_MAX: Final = 1_000_000
"""Characters of a Sigma rule's values, those that aliases of YAML repeat counted each time. Beyond
it: the rule is refused."""

EXPRESSIONS_SIZE_MAX: Final = 10_000
"""Characters of the regular expressions of a Sigma rule, and what their counts `{…}` ask for.
Beyond it: the rule is refused."""


class WildcardSign(Enum):
    """What stands for other text."""

    ANY = "*"
    ONE = "?"


WildcardText: TypeAlias = tuple[bytes | WildcardSign, ...]
"""Literal parts and wildcards, no two literal parts next to one another."""

Placeholders: TypeAlias = Mapping[str, Sequence[str]]
"""The values that each placeholder stands for, as they could stand in a rule."""


class Spelling:
    """What the values of one rule may become: the placeholders, and what the limits leave."""

    def __init__(self, placeholders: Placeholders) -> None:
        self.placeholders = placeholders
        self._characters = 0
        self._expressions = 0
        self._bytes = 0

    def value(self, value: Document) -> None:
        """Counts a value. Raises LimitError."""
        self._characters += len(value) if isinstance(value, str) else 1
        if self._characters > VALUES_CHARACTERS_MAX:
            raise LimitError("VALUES_CHARACTERS_MAX", VALUES_CHARACTERS_MAX)

    def expression(self, text: str) -> None:
        """Counts a regular expression. Raises LimitError."""
        self._expressions += len(text) + repeats_in(text)
        if self._expressions > EXPRESSIONS_SIZE_MAX:
            raise LimitError("EXPRESSIONS_SIZE_MAX", EXPRESSIONS_SIZE_MAX)

    def further(self, text: WildcardText) -> None:
        """Counts a text that a modifier made besides the first. Raises LimitError."""
        self._bytes += sum(len(part) for part in text if isinstance(part, bytes)) + len(text) + 1
        if self._bytes > SPELLED_BYTES_MAX:
            raise LimitError("SPELLED_BYTES_MAX", SPELLED_BYTES_MAX)


_TextModifier: TypeAlias = Callable[[WildcardText, Placeholders], Iterator[WildcardText]]
_ValueModifier: TypeAlias = Callable[[Document, Sequence[str], Spelling], ValueSet]

_WRITTEN: Final = re.compile(r"\\([\\*?])|([*?])", re.DOTALL)
_DASH: Final = re.compile(r"\B[-/–—―]\b")
_DASHES: Final[tuple[WildcardText, ...]] = tuple((each.encode(),) for each in "-/–—―")
_PLACEHOLDER: Final = re.compile(r"\\%|%(\w+)%")
_SHOWN_NUMBER: Final = re.compile(r"-?[0-9]{1,19}(\.[0-9]{1,19})?")
_ESCAPED: Final = re.compile(rb"([\\*?])")
_TRUTH: Final = {"true": True, "false": False}


def text_of(written: str) -> WildcardText:
    """The text that a value of a rule stands for."""
    parts: list[bytes | WildcardSign] = []
    at = 0
    for found in _WRITTEN.finditer(written):
        parts.append((written[at : found.start()] + (found[1] or "")).encode())
        if found[2] is not None:
            parts.append(WildcardSign(found[2]))
        at = found.end()
    parts.append(written[at:].encode())
    return _joined(parts)


def equal(value: str | int | float, *, cased: bool = False) -> ValueSet:
    """The values that equal a literal: texts, and the number or truth value that a text shows."""
    if isinstance(value, str):
        meant = _meant(value if cased else value.lower())
        same = sets.eq(value, nocase=not cased)
        return same if meant is None else same | sets.eq(meant)
    number = plain_number(value) if isinstance(value, float) else value
    shown = str(number).lower() if isinstance(number, bool) else str(number)
    return sets.eq(number) | sets.eq(shown, nocase=not cased)


def accepted(value: Document, modifiers: Sequence[str], spelling: Spelling, place: str) -> ValueSet:
    """What a field's value must be in, for one value of a rule and the field's modifiers.

    Raises RefusedRuleError, which names `place`, and LimitError.
    """
    try:
        spelling.value(value)
        return _accepted(value, modifiers, spelling)
    except InvalidFilterError as error:
        raise refused(sigma_refusals.PATTERN, f"{error.reason}: {value}", place) from None
    except RefusedRuleError as error:
        found = value if error.found is None else error.found
        raise refused(error.reason, found, place) from None


def _accepted(value: Document, modifiers: Sequence[str], spelling: Spelling) -> ValueSet:
    for each in modifiers:
        if each not in _KINDS and each not in _CHANGES and each not in _OTHERS:
            raise refused(sigma_refusals.MODIFIER, each)
    if len({*modifiers}) < len(modifiers):  # encoded often, a text would grow without bounds
        raise refused(sigma_refusals.MODIFIERS, "|".join(modifiers))
    kind = _KINDS.get(modifiers[0]) if modifiers else None
    if kind is not None:
        if len(modifiers) > 1 and modifiers[0] not in ("re", "fieldref"):
            raise refused(sigma_refusals.MODIFIERS, "|".join(modifiers))
        return kind(value, modifiers[1:], spelling)
    cased = "cased" in modifiers
    changes = [each for each in modifiers if each != "cased"]
    if isinstance(value, str):
        try:
            texts = _changed(text_of(value), changes, spelling)
        except UnicodeEncodeError:
            raise refused(sigma_refusals.VALUE) from None
        return union(_matching(text, cased=cased) for text in texts)
    if changes or isinstance(value, list | dict):
        raise refused(sigma_refusals.VALUE, value)
    if value is None:
        return ABSENT | sets.eq(None)
    return equal(_number(value), cased=cased)


def _meant(shown: str) -> int | float | None:
    """The number or truth value that a text shows, as it is written shortest."""
    if shown in _TRUTH:
        return _TRUTH[shown]
    if not _SHOWN_NUMBER.fullmatch(shown):
        return None
    number = plain_number(float(shown)) if "." in shown else int(shown)
    return number if str(number) == shown and INT_MIN <= number <= INT_MAX else None


def _number(value: object) -> int | float:
    if not isinstance(value, int | float) or value != value:
        raise refused(sigma_refusals.VALUE, value)
    if isinstance(value, int) and not INT_MIN <= value <= INT_MAX:
        raise refused(sigma_refusals.VALUE, value)
    return value


def _matching(text: WildcardText, *, cased: bool) -> ValueSet:
    if text and set(text) == {WildcardSign.ANY}:
        return PRESENT
    try:
        if not any(isinstance(part, WildcardSign) for part in text):
            return equal(b"".join(_literals(text)).decode(), cased=cased)
        pattern = b"".join(
            part.value.encode() if isinstance(part, WildcardSign) else _ESCAPED.sub(rb"\\\1", part)
            for part in text
        )
        return sets.wildcard(pattern.decode(), nocase=not cased)
    except UnicodeDecodeError:
        raise refused(sigma_refusals.VALUE) from None


# --- what modifiers make of texts ---------------------------------------------------------------


def _changed(text: WildcardText, changes: Sequence[str], spelling: Spelling) -> list[WildcardText]:
    texts = [text]
    for name in changes:
        change = _CHANGES.get(name)
        if change is None:
            raise refused(sigma_refusals.MODIFIERS, name)
        made: list[WildcardText] = []
        for each in texts:
            for number, other in enumerate(change(each, spelling.placeholders)):
                if number:
                    spelling.further(other)
                made.append(other)
        texts = made
    return texts


def _amid(*, before: bool, behind: bool) -> _TextModifier:
    """Any text before the text, or behind it, or both."""
    stars = (WildcardSign.ANY,) * before, (WildcardSign.ANY,) * behind

    def change(text: WildcardText, _: Placeholders) -> Iterator[WildcardText]:
        yield _joined((*stars[0], *text, *stars[1]))

    return change


def _dashed(text: WildcardText, _: Placeholders) -> Iterator[WildcardText]:
    """Each dash or slash that may begin an option as each of the signs that may."""
    return _replaced(text, _DASH, lambda found: _DASHES)


def _expanded(text: WildcardText, placeholders: Placeholders) -> Iterator[WildcardText]:
    """Each placeholder as each of its values; a percent sign behind a backslash is one."""

    def values(found: re.Match[str]) -> Iterable[WildcardText]:
        if found[0] == "\\%":
            return [(b"%",)]
        if found[1] not in placeholders:
            raise refused(sigma_refusals.PLACEHOLDER, found[1])
        return [text_of(value) for value in placeholders[found[1]]]

    return _replaced(text, _PLACEHOLDER, values)


def _replaced(
    text: WildcardText,
    pattern: re.Pattern[str],
    alternatives: Callable[[re.Match[str]], Iterable[WildcardText]],
) -> Iterator[WildcardText]:
    """The text with each place that matches in its literal parts as each of its alternatives."""
    choices: list[Iterable[WildcardText]] = []
    for part in text:
        if isinstance(part, WildcardSign):
            choices.append([(part,)])
            continue
        literal, at = part.decode("utf-8", "surrogateescape"), 0
        for found in pattern.finditer(literal):
            choices.append([_literal(literal[at : found.start()])])
            choices.append(alternatives(found))
            at = found.end()
        choices.append([_literal(literal[at:])])
    for chosen in product(*choices):
        yield _joined(part for each in chosen for part in each)


def _base64(text: WildcardText, _: Placeholders) -> Iterator[WildcardText]:
    yield (b64encode(_whole(text)),)


def _base64_anywhere(text: WildcardText, _: Placeholders) -> Iterator[WildcardText]:
    """What of the text is seen in Base64 at each of the three places where it can begin.

    Characters that also depend on what stands before or behind the text are left out.
    """
    literal = _whole(text)
    for before in range(3):
        encoded = b64encode(b"\0" * before + literal)
        seen = encoded[(0, 2, 3)[before] : (None, -3, -2)[(before + len(literal)) % 3]]
        if not seen:
            raise refused(sigma_refusals.VALUE)
        yield (seen,)


def _utf16(codec: str, mark: bytes = b"") -> _TextModifier:
    def change(text: WildcardText, _: Placeholders) -> Iterator[WildcardText]:
        try:
            encoded = [p if isinstance(p, WildcardSign) else p.decode().encode(codec) for p in text]
        except UnicodeDecodeError:
            raise refused(sigma_refusals.MODIFIERS, codec) from None
        yield _joined((mark, *encoded))

    return change


def _whole(text: WildcardText) -> bytes:
    """The literal of a text without wildcards."""
    if any(isinstance(part, WildcardSign) for part in text):
        raise refused(sigma_refusals.VALUE)
    return b"".join(_literals(text))


def _literals(text: WildcardText) -> list[bytes]:
    return [part for part in text if isinstance(part, bytes)]


def _literal(text: str) -> WildcardText:
    return (text.encode("utf-8", "surrogateescape"),)


def _joined(parts: Iterable[bytes | WildcardSign]) -> WildcardText:
    """The parts as a text: neighbouring literals joined, empty ones left out."""
    text: list[bytes | WildcardSign] = []
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
        raise refused(sigma_refusals.VALUE, value)
    return PRESENT if value else ABSENT


def _network(value: Document, *_: object) -> ValueSet:
    if not isinstance(value, str):
        raise refused(sigma_refusals.VALUE, value)
    return sets.cidr(value)


def _regular(value: Document, rest: Sequence[str], spelling: Spelling) -> ValueSet:
    if not set(rest) <= _FLAGS:
        raise refused(sigma_refusals.MODIFIERS, "|".join(("re", *rest)))
    if not isinstance(value, str):
        raise refused(sigma_refusals.VALUE, value)
    spelling.expression(value)
    flags = "".join(sorted(set(rest)))
    return sets.matches(f"(?{flags}){value}" if flags else value)


def _ordered(build: Callable[[int | float], ValueSet]) -> _ValueModifier:
    def kind(value: Document, *_: object) -> ValueSet:
        if isinstance(value, bool):
            raise refused(sigma_refusals.VALUE, value)
        return build(_number(value))

    return kind


def _field(value: Document, *_: object) -> ValueSet:
    raise refused(sigma_refusals.FIELD_REFERENCE, value)


_KINDS: Final[Mapping[str, _ValueModifier]] = {
    "exists": _exists,
    "cidr": _network,
    "re": _regular,
    "lt": _ordered(sets.lt),
    "lte": _ordered(sets.le),
    "gt": _ordered(sets.gt),
    "gte": _ordered(sets.ge),
    "fieldref": _field,
}
"""Modifiers that give the kind of a value. They come first."""

_FLAGS: Final = frozenset("ims")

_CHANGES: Final[Mapping[str, _TextModifier]] = {
    "contains": _amid(before=True, behind=True),
    "startswith": _amid(before=False, behind=True),
    "endswith": _amid(before=True, behind=False),
    "windash": _dashed,
    "expand": _expanded,
    "base64": _base64,
    "base64offset": _base64_anywhere,
    "utf16le": _utf16("utf-16-le"),
    "wide": _utf16("utf-16-le"),
    "utf16be": _utf16("utf-16-be"),
    "utf16": _utf16("utf-16-le", BOM_UTF16_LE),
}
"""Modifiers that make other texts of a text, in the order in which they stand."""

_OTHERS: Final = _FLAGS | {"cased"}
