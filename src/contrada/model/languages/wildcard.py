r"""The operator `wildcard`, and `wildcard nocase`: texts of a shape.

In the constant `*` means any bytes, `?` one character of UTF-8, and `\*`, `\?`, `\\` the characters
themselves. The shape is that of the whole text. A wildcard that means `=`, `prefix`, `suffix` or
`contains` has that as its plain form, and sets are made of it.
"""

import re
from functools import lru_cache
from typing import Final, NamedTuple

from contrada.errors import InvalidFilterError, LimitError
from contrada.model.languages import casefold, characters, regex_syntax
from contrada.model.languages.atoms import Atom, Operator, registry
from contrada.model.languages.automaton import Automaton
from contrada.model.languages.regex_machine import MACHINE_STATES_MAX, Machine
from contrada.model.languages.regex_operator import Plain, first_of, machine_of

SHAPES_CACHED_MAX: Final = 8_192
"""Compiled wildcards that are cached. Beyond it: the least recently used is compiled again."""

CHARACTER_STATES: Final = 10
"""More states than a machine has for a character of a wildcard; so short ones are not counted."""

_TOKEN: Final = re.compile(r"\\[*?\\]|[^\\]", re.DOTALL)
_ONE: Final = regex_syntax.Chars(characters.complement(()))


class Segments(NamedTuple):
    """The texts between the stars: the whole text begins and ends with the outer ones."""

    texts: tuple[bytes, ...]

    def hold(self, value: bytes) -> bool:
        """Whether a value has the shape; the leftmost place of each text always suffices."""
        first, *middle = self.texts
        if not middle:
            return value == first
        last = middle.pop()
        at, end = len(first), len(value) - len(last)
        if at > end or not (value.startswith(first) and value.endswith(last)):
            return False
        for text in middle:
            at = value.find(text, at, end)
            if at < 0:
                return False
            at += len(text)
        return True


class Wildcard(Operator):
    """Texts of the constant's shape; with `nocase` the constant is folded."""

    def __init__(self, name: str, *, nocase: bool = False) -> None:
        self.name = name
        self.nocase = nocase

    def check(self, constant: bytes) -> None:
        r"""Raises InvalidFilterError for a backslash before another character than `*?\`."""
        if _segments(constant) or len(constant) * CHARACTER_STATES < MACHINE_STATES_MAX:
            return
        try:
            machine_of(constant, _tree)
        except LimitError as error:
            raise InvalidFilterError(self.name, (constant,), str(error)) from None

    def apply(self, value: bytes, constant: bytes) -> bool:
        """See the class. Cost: linear in the value."""
        if self.nocase:
            constant, value = casefold.fold(constant), casefold.fold(value)
        segments = _segments(constant)
        if segments is None:  # Only question marks need a machine.
            return machine_of(constant, _tree).finds(value)
        return segments.hold(value)

    def implied(self, constant: bytes) -> Atom | None:
        longest = max(_texts_between("*?", tokens_of(constant)), key=len)
        return Atom("contains nocase" if self.nocase else "contains", longest) if longest else None

    def first(self, constant: bytes) -> bytes | None:
        """Returns the shortest text: nothing for a star, one character for a question mark."""
        parts = _tree(constant, nocase=self.nocase).parts[1:-1]
        return first_of(regex_syntax.Sequence(parts)) if regex_syntax.Anything() in parts else None

    def automaton(self, constant: bytes) -> Automaton:
        return Machine(_tree(constant, nocase=self.nocase)).automaton()


def normal(constant: str) -> str:
    """Returns the constant without stars that follow a star.

    A star and a question mark beside each other remain: `*?` ends with a character, and `?*` begins
    with one. The two differ on bytes that are not UTF-8. Raises InvalidFilterError for an invalid
    backslash.
    """
    tokens = tokens_of(constant)
    return "".join(
        token
        for before, token in zip(["", *tokens], tokens, strict=False)
        if not before == token == "*"
    )


def plain_form(constant: str, *, nocase: bool) -> Plain | None:
    """Returns the plain operator that a wildcard in its normal form is, or None."""
    tokens = tokens_of(constant)
    stars = [place for place, token in enumerate(tokens) if token == "*"]
    if "?" in tokens or not set(stars) <= {0, len(tokens) - 1}:
        return None
    text = "".join(token[-1] for token in tokens if token != "*")
    if len(stars) == 2 or tokens == ["*"]:
        return Plain("contains", text, nocase)
    operator = "=" if not stars else "suffix" if stars == [0] else "prefix"
    return Plain(operator, text, nocase)


def tokens_of(constant: str | bytes) -> list[str]:
    """Returns `*`, `?`, and single characters as written. Raises InvalidFilterError."""
    try:
        text = constant if isinstance(constant, str) else constant.decode()
    except UnicodeDecodeError:
        raise InvalidFilterError("wildcard", (constant,), "a wildcard is text in UTF-8") from None
    tokens = _TOKEN.findall(text)
    if sum(map(len, tokens)) != len(text):
        reason = "a backslash is allowed before *, ? and \\ only"
        raise InvalidFilterError("wildcard", (text,), reason)
    return tokens


@lru_cache(maxsize=SHAPES_CACHED_MAX)
def _segments(constant: bytes) -> Segments | None:
    """Returns the texts between the stars; None if there is a question mark."""
    tokens = tokens_of(constant)
    if "?" in tokens:
        return None
    return Segments(_texts_between("*", tokens))


def _texts_between(marks: str, tokens: list[str]) -> tuple[bytes, ...]:
    texts = [bytearray()]
    for token in tokens:
        if token in marks:
            texts.append(bytearray())
        else:
            texts[-1] += token[-1].encode()
    return tuple(map(bytes, texts))


def _tree(constant: bytes, *, nocase: bool = False) -> regex_syntax.Sequence:
    parts: list[regex_syntax.Tree] = [regex_syntax.Look(regex_syntax.AT_START)]
    for token in tokens_of(constant):
        if token == "*":
            parts.append(regex_syntax.Anything())
        elif token == "?":
            parts.append(_ONE)
        else:
            parts.append(regex_syntax.character(ord(token[-1]), nocase=nocase))
    return regex_syntax.Sequence((*parts, regex_syntax.Look(regex_syntax.AT_END)))


registry.add(Wildcard("wildcard"), Wildcard("wildcard nocase", nocase=True))
