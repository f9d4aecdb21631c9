r"""Regular expressions of the linear kind: their syntax, and their parser into a tree.

The syntax is RE2's, without constructs that no finite automaton has and without Unicode properties,
which change from year to year (docs/architecture.md lists them). `\d \w \s \b` and the classes
`[[:alpha:]]` are ASCII.

An expression is over characters. Bytes that are not UTF-8 are no character: no class and no `.` has
them. `\B` is a place between characters; an incomplete one, up to the first byte that cannot
continue it, counts as one there, as Unicode recommends.

Source: the syntax page of RE2 (github.com/google/re2).
"""

import re
from typing import Final, NamedTuple, TypeAlias

from contrada.errors import InvalidFilterError
from contrada.model.languages import characters
from contrada.model.languages.characters import Ranges
from contrada.model.languages.work_budget import spend

REPEATED_MAX: Final = 1_000
"""Largest count in `{…}`, and product of nested counts. Beyond it: InvalidFilterError."""

GROUPS_NESTED_MAX: Final = 50
"""Nesting depth of groups of a regular expression. Beyond it: InvalidFilterError."""

PATTERN_CHARACTERS_MAX: Final = 20_000
"""Characters of a regular expression. Beyond it: InvalidFilterError."""

_CHARACTER_WORK: Final = 10  # Steps of work to read a character of an expression, see `work_budget`
_PERL: Final = {"d": characters.DIGITS, "w": characters.WORD, "s": characters.SPACE}
_CONTROLS: Final = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
_FLAGS: Final = frozenset("imsU")
_FLAGS_IN_FRONT: Final = re.compile(r"\(\?([imsU]+)\)")
_ODD: Final = re.compile(r"\\Q(.*?)(?:\\E|\Z)|\\(.)|([\0-\x1f\x7f])", re.DOTALL)
_HEXADECIMAL: Final = re.compile(r"\{([0-9a-fA-F]{1,6})\}|([0-9a-fA-F]{2})")
_FLAG_CHANGES: Final = re.compile(r"([imsU]*)(?:-([imsU]*))?")
_COUNTS: Final = re.compile(r"\{([0-9]{1,9})(?:(,)([0-9]{0,9}))?\}")
_REFUSED_GROUPS: Final = {
    "look-around is": ("=", "!", "<=", "<!"),
    "atomic groups are": (">",),
    "back-references are": ("P=",),
    "recursion is": ("P>", "R", "0", "&", "+"),
    "conditions are": ("(",),
    "branch resets are": ("|",),
    "comments are": ("#",),
}


class Chars(NamedTuple):
    """One character of sorted, separate ranges. Ask for the type: an empty one equals `()`."""

    ranges: Ranges


class Look(NamedTuple):
    """No character, but a place in the text; `where` is one of the constants below."""

    where: int


class Sequence(NamedTuple):
    """The parts one after the other. Without parts: the empty text."""

    parts: tuple["Tree", ...]


class Alternation(NamedTuple):
    """One of the parts."""

    parts: tuple["Tree", ...]


class Repeat(NamedTuple):
    """The part, from `least` to `most` times; without `most` any number of times."""

    part: "Tree"
    least: int
    most: int | None


class Anything(NamedTuple):
    """Any bytes, whether characters or not. No syntax has it; wildcards do."""


Tree: TypeAlias = Chars | Look | Sequence | Alternation | Repeat | Anything

AT_START, AT_END, AT_LINE_START, AT_LINE_END, AT_WORD_EDGE, INSIDE_WORD = (1, 2, 4, 8, 16, 32)

EMPTY: Final = Sequence(())
_LOOKS: Final = {"A": AT_START, "z": AT_END, "b": AT_WORD_EDGE, "B": INSIDE_WORD}


def read(pattern: str) -> Tree:
    """Returns the tree of an expression. Raises InvalidFilterError with the fault and its place."""
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        reason = f"longer than PATTERN_CHARACTERS_MAX = {PATTERN_CHARACTERS_MAX} characters"
        raise InvalidFilterError("matches", (pattern,), reason)
    spend(_CHARACTER_WORK * len(pattern))
    return _RegexReader(pattern).whole()


def normal(pattern: str, flags: str = "") -> str:
    r"""Returns the expression with flags at the front, without control characters, `\Q` and `\/`.

    Raises InvalidFilterError at a flag other than `i`, `m`, `s` and `U`.
    """
    while (front := _FLAGS_IN_FRONT.match(pattern)) is not None:
        flags, pattern = flags + front[1], pattern[front.end() :]
    if not _FLAGS.issuperset(flags):
        raise InvalidFilterError("matches", (pattern,), f"the flags are i, m, s, U, not {flags!r}")
    written = "".join(sorted(set(flags)))
    return (f"(?{written})" if flags else "") + _ODD.sub(_without_oddity, pattern)


def _without_oddity(match: re.Match[str]) -> str:
    quoted, escaped, control = match.groups()
    if quoted is not None:
        return "".join(map(_literal_text, quoted))
    if control is not None or escaped == "/" or escaped < " " or escaped == "\x7f":
        return _literal_text(control or escaped)
    return match[0]


def repeats_in(text: str) -> int:
    """Returns the sum of the counts `{…}` in a text. Cost: linear; parses nothing else."""
    return sum(int(most or least) for least, _, most in _COUNTS.findall(text))


def character(code: int, *, nocase: bool = False) -> Chars:
    """Returns the tree of one character, with `nocase` of all that fold like it."""
    return Chars(characters.fold_ranges(((code, code),)) if nocase else ((code, code),))


def _literal_text(each: str) -> str:
    if each < " " or each == "\x7f":
        return f"\\x{ord(each):02x}"
    return each if each.isalnum() or each in "_/" or each > "\x7f" else f"\\{each}"


class _RegexReader:
    """Reads one expression from left to right."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.flags = frozenset[str]()
        self.nested = 0

    def whole(self) -> Tree:
        tree = self.choice()
        if self.at < len(self.pattern):
            raise self.error("a closing parenthesis without an opening one")
        if _largest_repeat(tree) > REPEATED_MAX:
            raise self.error(f"counts multiply to more than REPEATED_MAX = {REPEATED_MAX}")
        return tree

    def error(self, reason: str) -> InvalidFilterError:
        reason = f"{reason}, at character {self.at + 1}"
        return InvalidFilterError("matches", (self.pattern,), reason)

    def takes(self, token: str) -> bool:
        if not self.pattern.startswith(token, self.at):
            return False
        self.at += len(token)
        return True

    def next(self) -> str:
        if self.at == len(self.pattern):
            raise self.error("the expression ends too early")
        self.at += 1
        return self.pattern[self.at - 1]

    def choice(self) -> Tree:
        """Reads alternatives up to a closing parenthesis or the end, which ends inner flags."""
        flags = self.flags
        parts = [self.sequence()]
        while self.takes("|"):
            parts.append(self.sequence())
        self.flags = flags
        return parts[0] if len(parts) == 1 else Alternation(tuple(parts))

    def sequence(self) -> Tree:
        parts: list[Tree] = []
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            part = self.repeated()
            parts += part.parts if isinstance(part, Sequence) else (part,)
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def repeated(self) -> Tree:
        part = self.single()
        count = self.count()
        if count is None:
            return part
        self.takes("?")  # Lazy or not, the same texts have a match somewhere.
        if self.pattern.startswith("+", self.at):
            raise self.error("possessive repetition is refused")
        if self.count() is not None:
            raise self.error("a repetition of a repetition needs a group")
        least, most = count
        empty = isinstance(part, Sequence) and not part.parts
        return EMPTY if empty else Repeat(part, least, most)

    def count(self) -> tuple[int, int | None] | None:
        """Reads `*`, `+`, `?`, `{n}`, `{n,}` or `{n,m}`; any other brace is a character."""
        for token, count in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.takes(token):
                return count
        match = _COUNTS.match(self.pattern, self.at)
        if match is None:
            return None
        least, comma, most = match.groups()
        first = int(least)
        last = first if not comma else int(most) if most else None
        if max(first, last or 0) > REPEATED_MAX:
            raise self.error(f"a count above REPEATED_MAX = {REPEATED_MAX}")
        if last is not None and last < first:
            raise self.error("a repetition with counts in the wrong order")
        self.at = match.end()
        return first, last

    def single(self) -> Tree:
        """Returns one character, class, place or group. The empty tree for flags alone."""
        if self.pattern[self.at] in "*+?":
            raise self.error("nothing to repeat")
        token = self.next()
        if token == "(":
            return self.group()
        if token == "[":
            return self.chars(self.bracketed())
        if token == ".":
            return Chars(characters.complement(() if "s" in self.flags else characters.LINE_FEED))
        if token == "^":
            return Look(AT_LINE_START if "m" in self.flags else AT_START)
        if token == "$":
            return Look(AT_LINE_END if "m" in self.flags else AT_END)
        if token == "\\":
            return self.escaped()
        return self.chars(((ord(token), ord(token)),))

    def chars(self, ranges: Ranges) -> Chars:
        return Chars(characters.fold_ranges(ranges) if "i" in self.flags else ranges)

    def others(self, ranges: Ranges) -> Ranges:
        """Returns all other characters; with the flag `i` those that fold like none of these."""
        return characters.complement(self.chars(ranges).ranges)

    def group(self) -> Tree:
        opened = self.at
        if self.takes("?"):
            tree = self.special_group()
            if tree is not None:
                return tree
        if self.pattern.startswith("*", self.at):
            raise self.error("verbs are refused")
        return self.inside(opened)

    def inside(self, opened: int) -> Tree:
        """Reads the rest of a group up to its closing parenthesis."""
        self.nested += 1
        if self.nested > GROUPS_NESTED_MAX:
            raise self.error(f"groups nested deeper than GROUPS_NESTED_MAX = {GROUPS_NESTED_MAX}")
        tree = self.choice()
        self.nested -= 1
        if not self.takes(")"):  # The error gives the place of the opening parenthesis.
            self.at = opened - 1
            raise self.error("a group that is not closed")
        return tree

    def special_group(self) -> Tree | None:
        """Reads a group behind `(?`: refuses it, sets flags, or returns None for a named group."""
        for what, tokens in _REFUSED_GROUPS.items():
            if any(map(self.takes, tokens)):
                raise self.error(f"{what} refused")
        if self.takes("P<") or self.takes("<"):
            name, _, _ = self.pattern[self.at :].partition(">")
            if not name.isidentifier():
                raise self.error("a group's name that is not a word")
            self.at += len(name) + 1
            return None
        opened, outside = self.at - 1, self.flags
        self.flags = self.flag_letters()
        if self.takes(")"):
            return EMPTY
        if not self.takes(":"):
            raise self.error("an unknown kind of group")
        tree = self.inside(opened)
        self.flags = outside
        return tree

    def flag_letters(self) -> frozenset[str]:
        """Returns the flags as `i-s` changes them."""
        match = _FLAG_CHANGES.match(self.pattern, self.at)
        assert match is not None, "it matches the empty text"
        self.at = match.end()
        if self.pattern[self.at : self.at + 1] not in ("", ":", ")"):
            raise self.error("an unknown kind of group or flag")
        return (self.flags | set(match[1])) - set(match[2] or ())

    def escaped(self) -> Tree:
        token = self.next()
        if token in _LOOKS:
            return Look(_LOOKS[token])
        if token in "123456789gk":
            raise self.error("back-references are refused")
        if token in "pP":
            raise self.error("Unicode properties are refused")
        if token in "RXCKGZ":
            raise self.error(f"\\{token} is refused")
        if token.lower() in _PERL:
            ranges = _PERL[token.lower()]
            return self.chars(ranges) if token.islower() else Chars(self.others(ranges))
        code = self.code(token)
        return self.chars(((code, code),))

    def code(self, token: str) -> int:
        if token in _CONTROLS:
            return _CONTROLS[token]
        if token == "x":  # `\x7f` or `\x{10ffff}`
            match = _HEXADECIMAL.match(self.pattern, self.at)
            code = -1 if match is None else int(match[1] or match[2], 16)
            if match is None or code > characters.CHARACTER_LAST or 0xD800 <= code <= 0xDFFF:
                raise self.error("a character's code as \\x7f or \\x{10ffff} was expected")
            self.at = match.end()
            return code
        if token == "0":
            digits = self.pattern[self.at : self.at + 2]
            octal = digits[: next((i for i, d in enumerate(digits) if d not in "01234567"), 2)]
            self.at += len(octal)
            return int(octal or "0", 8)
        if token.isascii() and not token.isalnum():
            return ord(token)
        raise self.error(f"the escape \\{token} is unknown")

    def bracketed(self) -> Ranges:
        opened = self.at
        negative = self.takes("^")
        found: list[tuple[int, int]] = []
        first = True
        while first or not self.takes("]"):  # a bracket at the beginning is a character
            if self.at == len(self.pattern):
                self.at = opened - 1
                raise self.error("a class that is not closed")
            found += self.member()
            first = False
        ranges = characters.join_ranges(found)
        return self.others(ranges) if negative else ranges

    def member(self) -> Ranges:
        """Returns a character, a range, or a named class within a class."""
        if self.pattern.startswith("[:", self.at):  # `[:name:]` or `[:^name:]`
            name, closing, _ = self.pattern[self.at + 2 :].partition(":]")
            ranges = characters.POSIX.get(name.removeprefix("^"))
            if not closing or ranges is None:
                raise self.error("an unknown class [:…:]")
            self.at += len(name) + 4
            return self.others(ranges) if name.startswith("^") else ranges
        low = self.class_character()
        if not isinstance(low, int):
            return low
        # A hyphen in front of the closing bracket, or where the text ends, is a character.
        if not self.pattern.startswith("-", self.at) or self.pattern[self.at + 1 :][:1] in "]":
            return ((low, low),)
        self.at += 1
        high = self.class_character()
        if not isinstance(high, int) or high < low:
            raise self.error("a range with ends in the wrong order")
        return ((low, high),)

    def class_character(self) -> int | Ranges:
        r"""Returns a character's code, or the ranges of `\d` and the like."""
        token = self.next()
        if token != "\\":
            return ord(token)
        token = self.next()
        if token in "pP":
            raise self.error("Unicode properties are refused")
        if token.lower() in _PERL:
            ranges = _PERL[token.lower()]
            return ranges if token.islower() else self.others(ranges)
        return self.code(token)


def _largest_repeat(tree: Tree) -> int:
    if isinstance(tree, Repeat):
        return max(tree.most or tree.least, 1) * _largest_repeat(tree.part)
    if isinstance(tree, Sequence | Alternation):
        return max(map(_largest_repeat, tree.parts), default=1)
    return 1
