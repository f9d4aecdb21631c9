"""The operator `matches`: texts in which a regular expression finds a match.

An expression that only means `=`, `prefix`, `suffix` or `contains` of a few texts has plain forms,
and sets are made of those: decisions and matching are faster.
"""

from collections.abc import Callable, Iterator
from collections.abc import Sequence as Items
from functools import lru_cache
from itertools import chain, product
from typing import Final, NamedTuple, TypeAlias

from contrada.errors import InvalidFilterError, LimitError
from contrada.model.languages import characters, regex_syntax
from contrada.model.languages.atoms import Atom, Operator, registry
from contrada.model.languages.automaton import Automaton
from contrada.model.languages.casefold import fold
from contrada.model.languages.characters import Ranges
from contrada.model.languages.regex_machine import Machine

SMALL_STATES_MAX: Final = 500
"""States of a small machine. Beyond it: it counts as large, and few are cached."""

SMALL_MACHINES_CACHED_MAX: Final = 8_192
"""Small machines kept, by expression. Beyond it: the least recently used is built again."""

LARGE_MACHINES_CACHED_MAX: Final = 128
"""Larger machines kept, by expression. Beyond it: the least recently used is built again."""

ALIKE_CACHED_MAX: Final = 4_096
"""Characters with cached case folds. Beyond it: the least recently used is looked up again."""

EXPANDED_MAX: Final = 10_000
"""Characters of an expression's texts as plain forms. Beyond it: it stays an expression."""

_OPERATORS: Final = {
    (True, True): "=",
    (True, False): "prefix",
    (False, True): "suffix",
    (False, False): "contains",
}
_FEW: Final = 16


def _plain_runs(tree: regex_syntax.Tree) -> Iterator[tuple[str, bool]]:
    """Returns texts that every match contains, each with whether its case is ignored."""
    run: list[Ranges] = []
    for part in (*(tree.parts if isinstance(tree, regex_syntax.Sequence) else (tree,)), None):
        ranges = part.ranges if isinstance(part, regex_syntax.Chars) else ()
        if ranges and ranges in (((ranges[0][0],) * 2,), _alike(ranges[0][0])):
            run.append(ranges)  # One character, or all that fold like one.
        elif not isinstance(part, regex_syntax.Look):  # a place between characters parts no text
            if run:
                nocase = any(len(_few(ranges)) > 1 for ranges in run)
                yield "".join(chr(ranges[0][0]) for ranges in run), nocase
            run = []


class Plain(NamedTuple):
    """An operator that is no regular expression, with its constant."""

    operator: str
    text: str
    nocase: bool


class Matches(Operator):
    """Text in which the regular expression finds something."""

    name = "matches"

    def check(self, constant: bytes) -> None:
        """Raises InvalidFilterError for an expression that is not linear, or too large."""
        try:
            machine_of(constant)
        except LimitError as error:
            raise InvalidFilterError(self.name, (constant,), str(error)) from None

    def apply(self, value: bytes, constant: bytes) -> bool:
        """See the class. Cost: linear in the value."""
        return machine_of(constant).finds(value)

    def implied(self, constant: bytes) -> Atom | None:
        runs = _plain_runs(tree_of(constant))
        text, nocase = max(runs, key=lambda run: len(run[0]), default=("", False))
        if nocase:
            return Atom("contains nocase", fold(text.encode()))
        return Atom("contains", text.encode()) if text else None

    def examples(self, constant: bytes) -> tuple[bytes, ...]:
        """Returns the shortest text of the whole expression, with look-arounds as empty."""
        first = first_of(tree_of(constant), at_looks=b"")
        return () if first is None else (first,)

    def first(self, constant: bytes) -> bytes | None:
        """Returns the shortest such text, of these the lowest; None for look-arounds."""
        return first_of(tree_of(constant))

    def automaton(self, constant: bytes) -> Automaton:
        return machine_of(constant).automaton()


def tree_of(constant: bytes) -> regex_syntax.Tree:
    """Returns the tree of an expression in UTF-8. Raises InvalidFilterError."""
    try:
        return regex_syntax.read(constant.decode())
    except UnicodeDecodeError:
        reason = "a regular expression is text in UTF-8"
        raise InvalidFilterError("matches", (constant,), reason) from None


_Items: TypeAlias = tuple[regex_syntax.Tree, ...]
ReadTree: TypeAlias = Callable[[bytes], regex_syntax.Tree]


def machine_of(constant: bytes, read: ReadTree = tree_of) -> Machine:
    """Returns the machine of what `read` makes of a constant. Raises as `read`, and LimitError."""
    return _small_machine(constant, read) or _large_machine(constant, read)


@lru_cache(maxsize=SMALL_MACHINES_CACHED_MAX)
def _small_machine(constant: bytes, read: ReadTree) -> Machine | None:
    """Returns the machine if it is small, so that large ones do not fill the memory."""
    machine = _large_machine(constant, read)  # Only a complete machine knows its size.
    return machine if machine.states <= SMALL_STATES_MAX else None


@lru_cache(maxsize=LARGE_MACHINES_CACHED_MAX)
def _large_machine(constant: bytes, read: ReadTree) -> Machine:
    return Machine(read(constant))


def first_of(tree: regex_syntax.Tree, at_looks: bytes | None = None) -> bytes | None:
    """Returns the shortest text of a tree, of these the lowest; None for none or a look-around.

    `at_looks` replaces a look-around, if given; then the result may be no text of the tree.
    """
    if isinstance(tree, regex_syntax.Chars):
        return chr(tree.ranges[0][0]).encode() if tree.ranges else None
    if isinstance(tree, regex_syntax.Anything):
        return b""
    if isinstance(tree, regex_syntax.Repeat):
        part = first_of(tree.part, at_looks)
        return None if part is None else part * tree.least
    if isinstance(tree, regex_syntax.Look):
        return at_looks
    parts = [first_of(part, at_looks) for part in tree.parts]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or (not parts and isinstance(tree, regex_syntax.Alternation)):
        return None
    if isinstance(tree, regex_syntax.Sequence):
        return b"".join(known)
    return min(known, key=lambda text: (len(text), text))


def plain_forms(tree: regex_syntax.Tree) -> list[Plain] | None:
    """Returns operators of which one holds exactly if the expression finds a match, or None."""
    left = EXPANDED_MAX
    forms: dict[Plain, None] = {}
    try:
        for items in _expand(tree):
            found, at_start, at_end = _inner(items)
            for text, nocase in _texts(found):
                left -= len(text) + 1
                if left < 0:
                    return None
                forms[Plain(_OPERATORS[at_start, at_end], text, nocase)] = None
    except _NotPlainError:
        return None
    return list(forms)


class _NotPlainError(Exception):
    """The expression is more than plain operators, or too many of them."""


def _expand(tree: regex_syntax.Tree) -> list[_Items]:
    """Yields alternatives as sequences of characters, places and unbounded repetitions."""
    if isinstance(tree, regex_syntax.Alternation):
        found = list(chain.from_iterable(map(_expand, tree.parts)))
    elif isinstance(tree, regex_syntax.Sequence):
        found = _products([_expand(part) for part in tree.parts])
    elif isinstance(tree, regex_syntax.Repeat) and tree.most is not None:
        part = _expand(tree.part)
        found, times = [], _products([part] * tree.least)
        for count in range(tree.least, tree.most + 1):
            times = _products([times, part]) if count > tree.least else times
            found += times
            _check_size(found)
    else:
        return [(tree,)]
    _check_size(found)
    return found


def _check_size(found: list[_Items]) -> None:
    if sum(map(len, found)) + len(found) > EXPANDED_MAX:
        raise _NotPlainError


def _products(parts: list[list[_Items]]) -> list[_Items]:
    found: list[_Items] = [()]
    for part in parts:
        longest = max(map(len, found), default=0) + max(map(len, part), default=0)
        if len(found) * len(part) * (longest + 1) > 8 * EXPANDED_MAX:
            raise _NotPlainError
        found = [(*items, *more) for items in found for more in part]
    return found


def _inner(items: Items[regex_syntax.Tree]) -> tuple[list[Ranges], bool, bool]:
    """Returns the characters of an alternative, and whether they start, and end, the text."""
    first, last = 0, len(items)
    while first < last and _may_be_empty(items[first]):
        first += 1
    # Nothing is skipped behind `^`: an optional part there is at no free end.
    at_start = first < last and items[first] == regex_syntax.Look(regex_syntax.AT_START)
    while first < last and _may_be_empty(items[last - 1]):
        last -= 1
    at_end = first < last and items[last - 1] == regex_syntax.Look(regex_syntax.AT_END)
    inner = items[first + at_start : last - at_end]
    if not all(isinstance(item, regex_syntax.Chars) for item in inner):
        raise _NotPlainError
    return [item.ranges for item in inner if isinstance(item, regex_syntax.Chars)], at_start, at_end


def _may_be_empty(tree: regex_syntax.Tree) -> bool:
    if isinstance(tree, regex_syntax.Repeat):
        return tree.least == 0 or _may_be_empty(tree.part)
    if isinstance(tree, regex_syntax.Sequence):
        return all(map(_may_be_empty, tree.parts))
    return isinstance(tree, regex_syntax.Alternation) and any(map(_may_be_empty, tree.parts))


def _texts(classes: list[Ranges]) -> Iterator[tuple[str, bool]]:
    codes = [_few(ranges) for ranges in classes]
    # One text represents all spellings by case only if every character allows all that
    # fold like it; `[aA]b` does not, and becomes two texts.
    has_case = any(_alike(code) != ((code, code),) for each in codes for code in each)
    nocase = has_case and all(characters.fold_ranges(ranges) == ranges for ranges in classes)
    if nocase:
        codes = [list(dict.fromkeys(_alike(code)[0][0] for code in each)) for each in codes]
    for choice in product(*codes):
        yield "".join(map(chr, choice)), nocase


def _few(ranges: Ranges) -> list[int]:
    """Returns the code points of a small class."""
    codes: list[int] = []
    for first, last in ranges:
        if last - first + len(codes) >= _FEW:
            raise _NotPlainError
        codes += range(first, last + 1)
    if not codes:
        raise _NotPlainError
    return codes


@lru_cache(maxsize=ALIKE_CACHED_MAX)
def _alike(code: int) -> Ranges:
    return characters.fold_ranges(((code, code),))


registry.add(Matches())
