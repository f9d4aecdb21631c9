"""`ValueSet`: a set of values of one attribute, over all domains and *absent*.

Membership, union, intersection and complement are exact. Inclusion, meeting, emptiness and equality
are exact within the limits of `decision`; beyond them the answer is the safe one (not included,
meeting, not empty, not equal), counted in `decision.safe_answers`. A set with an unregistered
operator meets everything and covers nothing; its membership raises UnknownOperatorError.
"""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable
from functools import lru_cache
from typing import Final

from contrada.errors import InvalidFilterError, LimitError
from contrada.model.algebra import notation
from contrada.model.domains import line
from contrada.model.domains.line import NOT_TEXT, TEXT_START, Cuts
from contrada.model.domains.values import TEXT, Key, Value, key_of
from contrada.model.languages import automaton, decision, language
from contrada.model.languages import language_keys as keys
from contrada.model.languages.automaton import Automaton
from contrada.model.languages.language import Language, Pieces
from contrada.model.languages.work_budget import Exhausted, spend

_new: Final = object.__new__


class ValueSet:
    """A set of values of one attribute; immutable.

    Build one with the functions of `ct.ops` (`lt`, `between`, `prefix`, …), from a text
    (`ValueSet.parse("< 3 | > 7 | absent")`), or from others with `& | ~ -`.

    `line` holds the cuts, `text` the expression of the text part or None. Invariant: with `text`,
    `line` holds no text, and `text` is not plain intervals. `ValueSet(cuts)` raises
    InvalidFilterError for invalid or unordered cuts.

    Source: PODC 2000 §2 and §3 (constraints); that constraints are sets is this project's.
    """

    __slots__ = ("_hash", "line", "text")

    _hash: int
    line: Cuts
    text: Language | None

    def __init__(self, cuts: Cuts, text: Language | None = None) -> None:
        try:
            line.check(cuts)
        except ValueError as error:
            raise InvalidFilterError("cuts", (cuts,), str(error)) from None
        self._hold(cuts, text)

    def _hold(self, cuts: Cuts, text: Language | None) -> None:
        if isinstance(text, Pieces):
            cuts, text = line.union(cuts, text.cuts), None
        object.__setattr__(self, "line", cuts)
        object.__setattr__(self, "text", text)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a ValueSet cannot be changed")

    def __reduce__(self) -> tuple[type["ValueSet"], tuple[Cuts, Language | None]]:
        return ValueSet, (self.line, self.text)

    @staticmethod
    def parse(text: str) -> "ValueSet":
        """Parses a set, as `(<3 | >7 | absent)`. Raises ParseError with line and column."""
        return notation.parse_as(ValueSet, text)

    def contains(self, value: Value) -> bool:
        """Whether the set holds the value. Exact; cost: logarithmic, and the atoms' `apply`."""
        return self.holds(key_of(value))

    __contains__ = contains

    def holds(self, key: Key) -> bool:
        """Whether the set holds the value with this key.

        Exact, unless a server has bounded the work of a request: beyond it yes, and counted.
        """
        if self.text is None or key[0] != TEXT:
            return line.holds(self.line, key)
        try:
            return language.contains(self.text, key[1])  # type: ignore[arg-type]
        except Exhausted as exhausted:
            return answer_exhausted(exhausted, "holds", answer=True)

    def __and__(self, other: "ValueSet") -> "ValueSet":
        if self.text is None and other.text is None:
            return of_cuts(line.intersection(self.line, other.line))
        (cuts_a, text_a), (cuts_b, text_b) = self.parts(), other.parts()
        return of_cuts(line.intersection(cuts_a, cuts_b), language.every((text_a, text_b)))

    def __or__(self, other: "ValueSet") -> "ValueSet":
        if self.text is None and other.text is None:
            return of_cuts(line.union(self.line, other.line))
        (cuts_a, text_a), (cuts_b, text_b) = self.parts(), other.parts()
        return of_cuts(line.union(cuts_a, cuts_b), language.some((text_a, text_b)))

    def __invert__(self) -> "ValueSet":
        if self.text is None:
            return of_cuts(line.complement(self.line))
        cuts = line.intersection(line.complement(self.line), NOT_TEXT)
        return of_cuts(cuts, language.negation(self.text))

    def __sub__(self, other: "ValueSet") -> "ValueSet":
        return self & ~other

    def parts(self) -> tuple[Cuts, Language]:
        """Returns the cuts outside text, and the text part."""
        if self.text is not None:
            return self.line, self.text
        cuts = self.line
        at = bisect_left(cuts, TEXT_START)
        if not at & 1:
            return cuts[:at], Pieces(cuts[at:])
        if cuts[at : at + 1] == (TEXT_START,):
            return cuts[: at + 1], Pieces(cuts[at + 1 :])
        return (*cuts[:at], TEXT_START), Pieces((TEXT_START, *cuts[at:]))

    def issuperset(self, other: "ValueSet") -> bool:
        """Whether every value of the other set is in this one."""
        if self.text is None and other.text is None:
            a, b = self.line, other.line
            if len(a) == 2 and len(b) == 2:  # the usual case, for speed
                return a[0] <= b[0] and b[1] <= a[1]
            return line.includes(a, b)
        if self.unknown() or other.unknown():
            return _safe("covers: unknown operator", False)
        (cuts_a, text_a), (cuts_b, text_b) = self.parts(), other.parts()
        if not line.includes(cuts_a, cuts_b):
            return False
        if text_a == text_b:
            return True
        try:
            spend(language.size_of(text_a) + language.size_of(text_b))
            outside = language.every((text_b, language.negation(text_a)))
            return not _nonempty(outside, "covers")
        except Exhausted as exhausted:
            return answer_exhausted(exhausted, "covers", answer=False)

    def issubset(self, other: "ValueSet") -> bool:
        """Whether every value of this set is in the other one."""
        return other.issuperset(self)

    __ge__ = issuperset
    __le__ = issubset

    def meets(self, other: "ValueSet") -> bool:
        """Whether some value is in both sets."""
        if self.text is None and other.text is None:
            return line.overlaps(self.line, other.line)
        if self.unknown() or other.unknown():
            return _safe("meets: unknown operator", True)
        (cuts_a, text_a), (cuts_b, text_b) = self.parts(), other.parts()
        if line.overlaps(cuts_a, cuts_b):
            return True
        try:
            spend(language.size_of(text_a) + language.size_of(text_b))
            return _nonempty(language.every((text_a, text_b)), "meets")
        except Exhausted as exhausted:
            return answer_exhausted(exhausted, "meets", answer=True)

    def shows_apart(self, other: "ValueSet") -> bool:
        """Whether the sets visibly are apart; a no may be wrong. See `decision.exclude`."""
        if self.text is None and other.text is None:
            return not line.overlaps(self.line, other.line)
        (cuts_a, text_a), (cuts_b, text_b) = self.parts(), other.parts()
        return not line.overlaps(cuts_a, cuts_b) and decision.exclude(text_a, text_b)

    def shows_empty(self) -> bool:
        """Whether the set is seen to be empty; as `shows_apart`."""
        if self.line or self.text is None:
            return not self.line
        return decision.is_contradiction(self.text)

    @property
    def is_empty(self) -> bool:
        """Whether no value is in the set."""
        if self.line or self.text is None:
            return not self.line
        if self.unknown():
            return _safe("empty: unknown operator", False)
        try:
            return not _nonempty(self.text, "empty")
        except Exhausted as exhausted:
            return answer_exhausted(exhausted, "empty", answer=False)

    def __bool__(self) -> bool:
        raise TypeError("ask a ValueSet for is_empty, or for contains(value)")

    def __eq__(self, other: object) -> bool:
        """Whether both sets hold the same values. Beyond the limits: no, and counted."""
        if not isinstance(other, ValueSet):
            return NotImplemented
        if self.line == other.line and self.text == other.text:
            return True
        if self.text is None and other.text is None:
            return False
        return self.issuperset(other) and other.issuperset(self)

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            found = hash(self.key())
            object.__setattr__(self, "_hash", found)
            return found

    def key(self) -> object:
        """Returns a key that equal sets share and most others do not; see `language_keys`.

        Cheap except for memory. Beyond the limits, and with unregistered operators, it is the key
        of the form.
        """
        if self.text is not None and self.unknown():
            return self.form()
        cuts, text = self.parts()
        return line.packed(cuts), keys.key(text)

    def form(self) -> Hashable:
        """Returns a key that sets share if they are written alike. Cost: linear, no decision."""
        cuts = line.packed(self.line)
        return cuts if self.text is None else (cuts, self.text)

    def canonical(self) -> "ValueSet":
        """Returns the same set, as plain cuts if it is a finite union of intervals.

        Plain cuts are the same for equal sets, in every process. Cost: the automaton of the
        expression, if there is one; beyond the limits, or with opaque operators, the set itself.
        """
        if self.text is None or self.unknown():
            return self
        held = _canonical(self.text)
        return of_cuts(self.line, Pieces(held)) if isinstance(held, tuple) else self

    def some_key(self, *, readable: bool = True) -> Key | None:
        """Returns the key of a value in the set, *absent* only if there is no other.

        None if no value is known. `readable` spends some memberships on a value that is easy to
        read.
        """
        if self.line and (self.text is None or self.line != line.ABSENT_POINT):
            plain = not readable and len(self.line[0]) == 2
            return self.line[0] if plain else line.friendly_key(self.line)  # type: ignore[return-value]
        if self.text is not None and not self.unknown():
            try:
                found = decision.find(self.text)
                if isinstance(found, bytes):
                    return (TEXT, decision.make_readable(self.text, found) if readable else found)
            except Exhausted as exhausted:
                answer_exhausted(exhausted, "witness", answer=False)
        return line.friendly_key(self.line) if self.line else None

    def unknown(self) -> tuple[str, ...]:
        """Returns the names of operators in the set that nobody registered here."""
        if self.text is None:
            return ()
        return tuple(dict.fromkeys(decision.unknown_operators(self.text)))

    def __str__(self) -> str:
        return notation.text_of(self)

    def __repr__(self) -> str:
        return f"ValueSet.parse({str(self)!r})"


def of_cuts(cuts: Cuts, text: Language | None = None) -> ValueSet:
    """Returns the set with these cuts, which are known to be in order."""
    new = _new(ValueSet)
    new._hold(cuts, text)
    return new


NOTHING: Final = ValueSet(line.EMPTY)
EVERYTHING: Final = ValueSet(line.EVERYTHING)
PRESENT: Final = ValueSet(line.PRESENT)
ABSENT: Final = ValueSet(line.ABSENT_POINT)


def of_keys(keys: Iterable[Key]) -> ValueSet:
    """Returns the set of the values with these keys. Cost: one sort."""
    cuts: list[line.Cut] = []
    for key in sorted(set(keys)):
        before, after = line.point(key)
        if cuts and cuts[-1] == before:
            cuts[-1] = after
        else:
            cuts += (before, after)
    return of_cuts(tuple(cuts))


def union(sets: Iterable[ValueSet]) -> ValueSet:
    """Returns the union of many sets. Cost: their total size, times the log of their number."""
    return _join(line.union, language.some, list(sets) or [NOTHING])


def intersection(sets: Iterable[ValueSet]) -> ValueSet:
    """Returns the intersection of many sets. Cost: as of `union`."""
    return _join(line.intersection, language.every, list(sets) or [EVERYTHING])


def _join(
    join: Callable[[Cuts, Cuts], Cuts],
    join_texts: Callable[[Iterable[Language]], Language],
    sets: list[ValueSet],
) -> ValueSet:
    """Joins all texts at once, and all cuts in pairs of neighbours."""
    if len(sets) == 1:
        return sets[0]
    if all(each.text is None for each in sets):
        return of_cuts(line.join_all(join, [each.line for each in sets]))
    parts = [each.parts() for each in sets]
    text = join_texts([language_part for _, language_part in parts])
    return of_cuts(line.join_all(join, [cuts for cuts, _ in parts]), text)


@lru_cache(maxsize=automaton.AUTOMATA_CACHED_MAX)
def _canonical(text: Language) -> Cuts | Automaton | None:
    """Returns the cuts of a language, or its minimal automaton; None beyond limits."""
    try:
        machine = decision.automaton_for(text)
    except (LimitError, ValueError):
        return None
    cuts = automaton.intervals_of(machine)
    return machine if cuts is None else cuts


def _nonempty(text: Language, question: str) -> bool:
    """Whether a language has a text; beyond the limits yes, counted."""
    answer = decision.find(text)
    if answer is decision.UNDECIDED:
        return _safe(question, True)
    return isinstance(answer, bytes)


def answer_exhausted(exhausted: Exhausted, question: str, *, answer: bool) -> bool:
    """Returns the safe answer, counted, when the work of a request is exhausted.

    Within another decision it raises instead: a cached answer must not depend on the work that was
    left.
    """
    if not exhausted.is_here:
        raise exhausted
    return _safe(f"{question}: {exhausted.work.limit}", answer)


def _safe(question: str, answer: bool) -> bool:
    decision.safe_answers.add(question)
    return answer
