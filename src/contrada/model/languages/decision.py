"""`find`: decisions about sets of text by search for a text.

Every relation of languages (empty? inside another? do they meet? equal?) reduces to one search: a
text of this language, or the proof that there is none. It explores the product of the automata of
the intervals and atoms, breadth first. The answer is exact as long as automata and product are
within `STATES_MAX` and all atoms are regular. Opaque atoms are handled by cases: each may hold or
not, unless the atoms' own `covers` and `intersects` exclude it. An answer that is `UNDECIDED` gets
the caller's safe answer, counted in `safe_answers`.
"""

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import lru_cache
from itertools import combinations, islice, product
from math import prod
from typing import Final, TypeAlias

from contrada.errors import LimitError
from contrada.model.domains import line
from contrada.model.domains.line import Cuts
from contrada.model.languages import automaton
from contrada.model.languages.atoms import Atom, Tally, automaton_of, failures, registry
from contrada.model.languages.automaton import DEAD, OPEN, STATES_MAX, UNIVERSAL, Automaton
from contrada.model.languages.language import (
    ANY_TEXT,
    NO_TEXT,
    Every,
    Language,
    Literal,
    Pieces,
    Some,
    atoms_of,
    contains,
    every,
    size_of,
    some,
)
from contrada.model.languages.work_budget import Work, spend

OPAQUE_ATOMS_MAX: Final = 6
"""Distinct opaque atoms in one decision; each doubles the cases. Beyond it: the safe answer."""

CONSTANTS_TRIED_MAX: Final = 8
"""Constants tried as an answer before automata are built. Beyond it: automata are built."""

DECISION_WORK_MAX: Final = 1_000_000
"""Steps of a decision, of about 1 µs, without building automata. Beyond it: the safe answer."""

READABLE_WORK_MAX: Final = 30_000
"""Steps to make the text of a witness readable. Beyond it: the rest of it remains unchanged."""

PAIRS_ASKED_MAX: Final = 1_000
"""Pairs of parts compared for mutual exclusion. Beyond it: unknown, or automata are built."""

DECISIONS_CACHED_MAX: Final = 65_536
"""Decisions that are cached. Beyond it: the least recently used is decided again."""

_STATE_WORK: Final = 20  # Steps of work for each state of an automaton in a decision
_ATOM_WORK: Final = 400  # Steps of work to build the smallest automaton of most operators

safe_answers: Final = Tally()
"""Safe answers to undecided questions, by the question."""

_Leaf: TypeAlias = Cuts | Atom
_Vector: TypeAlias = Sequence[int]
_State: TypeAlias = tuple[int, ...]

_GUESSED: Final = {
    "= nocase": 0,
    "prefix nocase": 0,
    "contains": 1,
    "contains nocase": 1,
    "suffix": 2,
    "suffix nocase": 2,
}
"""The place of an operator's constant in a guess: in front, within, or behind."""

_READABLE: Final = b"abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ _-./:"
_NOT: Final = (UNIVERSAL, DEAD, OPEN)


class Unfound(Enum):
    """An answer without a text: there is none, or it is unknown whether there is one."""

    EMPTY = "empty"
    UNDECIDED = "undecided"


EMPTY: Final = Unfound.EMPTY
UNDECIDED: Final = Unfound.UNDECIDED

Decision: TypeAlias = bytes | Unfound
"""A text of the language, or an answer without one."""


@lru_cache(maxsize=DECISIONS_CACHED_MAX)
def find(language: Language) -> Decision:
    """Searches a text of the language.

    Cost: `DECISION_WORK_MAX`, and that of the automata. In each case of the opaque atoms at most
    `STATES_MAX` states of the product.
    """
    work = Work("DECISION_WORK_MAX", DECISION_WORK_MAX)
    try:
        with work:
            tried = _decide_quickly(language)
            if tried is not None:
                return tried
            spend(_building_work(language))
        opaque = sorted({atom for atom in atoms_of(language) if _is_opaque(atom)})
        if not opaque:
            return _search(language, work)
        return _by_cases(language, opaque, work)
    except LimitError:
        return UNDECIDED


def _by_cases(language: Language, opaque: Sequence[Atom], work: Work) -> Decision:
    """As `find`: each opaque atom may hold or not. Raises LimitError."""
    if len(opaque) > OPAQUE_ATOMS_MAX:
        return UNDECIDED
    answer: Decision = EMPTY
    for holding in product((True, False), repeat=len(opaque)):
        case = dict(zip(opaque, holding, strict=True))
        # No case decides alone that there is nothing; one that has a text decides that there is.
        found = _find_in_case(language, case, work)
        if isinstance(found, bytes):
            return found
        if found is UNDECIDED:
            answer = UNDECIDED
    return answer


def automaton_for(language: Language) -> Automaton:
    """Returns the minimal automaton. Raises LimitError, and ValueError at an opaque atom."""
    with Work("DECISION_WORK_MAX", DECISION_WORK_MAX):
        spend(_building_work(language))
        return automaton.product_of(*_prepare(language))


def _find_in_case(language: Language, case: dict[Atom, bool], work: Work) -> Decision:
    regular = _with(language, case)
    with work:
        answer = _decide_quickly(regular)
    if answer is None:
        answer = _search(regular, work)
    with work:
        if not isinstance(answer, bytes) or _contradicts(case):
            return EMPTY if isinstance(answer, bytes) else answer
        # The text fits the case; the opaque atoms must confirm it. Of a few
        # texts all are asked of; of more another one may do, so that one no decides nothing.
        candidates = _points(regular)
        for text in candidates if candidates is not None else (answer,):
            spend(_test_work(language, text))
            if contains(language, text):
                return text
    return EMPTY if candidates is not None else UNDECIDED


def _test_work(language: Language, text: bytes) -> int:
    return size_of(language) * (1 + len(text) // 100)


def _decide_quickly(language: Language) -> Decision | None:
    """Decides without automata: from intervals, examples, and the operators' own answers."""
    if isinstance(language, Pieces):
        if not language.cuts:
            return EMPTY
        cut = language.cuts[0]
        return cut[1] if len(cut) == 2 else b""  # type: ignore[return-value]
    if is_contradiction(language):
        return EMPTY
    for text in islice(_examples(language), CONSTANTS_TRIED_MAX):
        spend(_test_work(language, text))
        if contains(language, text):
            return text
    text = b"".join(guess(language))
    spend(_test_work(language, text))
    return text if contains(language, text) else None


def exclude(one: Language, two: Language) -> bool:
    """Whether operators show that no text is in both. A no may be wrong; builds no automaton."""
    return pairs_of(one, two) <= PAIRS_ASKED_MAX and is_contradiction(Every((one, two)))


def pairs_of(one: Language, two: Language) -> int:
    """Returns about the number of pairs of parts of two languages."""
    return prod(len(each.parts) for each in (one, two) if isinstance(each, Every | Some))


def is_contradiction(language: Language) -> bool:
    """Whether the language is seen to be empty; as `exclude`."""
    if not isinstance(language, Some | Every):
        return language == NO_TEXT
    try:
        with Work("PAIRS_ASKED_MAX", PAIRS_ASKED_MAX):
            return _is_contradiction(language)
    except LimitError:
        return False


def _is_contradiction(language: Language) -> bool:
    """Whether each alternative has two parts that exclude each other."""
    if isinstance(language, Some):
        return all(map(_is_contradiction, language.parts))
    if isinstance(language, Every):
        return any(_exclude(a, b) for a, b in combinations(language.parts, 2))
    return language == NO_TEXT


def _exclude(one: Language, two: Language) -> bool:
    for a, b in ((one, two), (two, one)):
        if isinstance(a, Some):
            return all(_exclude(part, b) for part in a.parts)
    for a, b in ((one, two), (two, one)):
        if isinstance(a, Every):
            return any(_exclude(part, b) for part in a.parts)
    spend(1)
    if isinstance(one, Pieces):
        one, two = two, one
    if isinstance(one, Pieces):
        return not line.overlaps(one.cuts, two.cuts)  # type: ignore[union-attr]
    if isinstance(two, Pieces):
        spend(len(two.cuts) // 2)
        texts = _points(two)
        return texts is not None and not any(contains(one, text) for text in texts)
    assert isinstance(one, Literal), "nothing else is left"
    assert isinstance(two, Literal), "nothing else is left"
    if one.atom == two.atom:
        return one.positive != two.positive
    return _contradicts({one.atom: one.positive, two.atom: two.positive})


def guess(language: Language) -> tuple[bytes, bytes, bytes]:
    """Returns a likely beginning, middle and end of a text of the language; ignores negations."""
    if isinstance(language, Pieces):
        cut = language.cuts[0] if language.cuts else (0,)
        return (cut[1] if len(cut) == 2 else b""), b"", b""  # type: ignore[return-value]
    if isinstance(language, Literal):
        operator, constant = language.atom
        if not language.positive or operator not in _GUESSED:
            return b"", b"", b""
        place = _GUESSED[operator]
        return b"" if place else constant, constant * (place == 1), constant * (place == 2)
    if isinstance(language, Some):
        return guess(language.parts[0])
    begins, inner, ends = zip(*map(guess, language.parts), strict=True)
    return b"".join(begins), b"".join(inner), b"".join(ends)


def _search(language: Language, work: Work) -> Decision:
    """Decides by the automata of a language without opaque atoms. Raises LimitError.

    Building an automaton spends none of the decision's work, else the answer would depend on the
    cache; instead each automaton counts by its size.
    """
    automata, value = _prepare(language)
    with work:
        spend(_STATE_WORK * sum(len(each.rows) for each in automata))
        return _explore(automata, value)


def _building_work(language: Language) -> int:
    """Returns about the least steps to build the automata of an expression."""
    if isinstance(language, Every | Some):
        return sum(map(_building_work, language.parts))
    if isinstance(language, Pieces):
        ends = sum(len(cut[1]) for cut in language.cuts if len(cut) == 2)  # type: ignore[arg-type,misc]
        return _STATE_WORK * (2 + ends)
    is_searched = language.atom.operator in ("suffix", "contains")
    return _STATE_WORK * (2 + len(language.atom.constant)) + (0 if is_searched else _ATOM_WORK)


def _examples(language: Language) -> Iterator[bytes]:
    """Yields the example texts of the expression's operators."""
    for atom in atoms_of(language):
        try:
            examples: tuple[object, ...] = registry.get(atom.operator).examples(atom.constant)
            yield from [text for text in examples if isinstance(text, bytes)]
        except Exception:  # noqa: BLE001  extension code may raise anything
            failures.add(atom.operator)


def make_readable(language: Language, text: bytes) -> bytes:
    """Returns a text of the language, of the same length, with readable characters if possible.

    Cost: a membership test for each byte and candidate, at most `READABLE_WORK_MAX`.
    """
    readable_text = bytearray(text)
    done = 0
    try:
        with Work("READABLE_WORK_MAX", READABLE_WORK_MAX):
            for done in range(len(text)):
                for byte in _READABLE:
                    readable_text[done] = byte
                    spend(_test_work(language, text))
                    if contains(language, bytes(readable_text)):
                        break
                else:
                    readable_text[done] = text[done]
    except LimitError:
        readable_text[done:] = text[done:]
    return bytes(readable_text)


def _explore(automata: Sequence[Automaton], value: Callable[[_Vector], int]) -> Decision:
    all_fates = [a.fates for a in automata]
    all_accepting = [a.accepting for a in automata]
    all_rows = [a.rows for a in automata]
    all_turns = [a.turns for a in automata]
    start: _State = (0,) * len(automata)
    came_from: dict[_State, tuple[_State, int] | None] = {start: None}
    for state in (waiting := [start]):
        # First the decided states, which need no further steps; then, by the same
        # expression, whether a text that ends here is one: acceptance counts as a fate.
        fate = value([fates[s] for fates, s in zip(all_fates, state, strict=True)])
        if fate == OPEN:
            fate = value([accepts[s] for accepts, s in zip(all_accepting, state, strict=True)])
            if fate == DEAD:
                rows = [r[s] for r, s in zip(all_rows, state, strict=True)]
                turns = [t[s] for t, s in zip(all_turns, state, strict=True)]
                steps = turns[0].union(*turns[1:])
                spend(automaton.step_work(len(turns), len(steps)))
                for byte in steps:  # the bytes between two turns lead where the first turn leads
                    target = tuple([row[byte] for row in rows])
                    if target not in came_from:
                        came_from[target] = (state, byte)
                        waiting.append(target)
                if len(came_from) > STATES_MAX:
                    return UNDECIDED
        if fate == UNIVERSAL:
            return _path(came_from, state)
    return EMPTY


def _path(came_from: dict[_State, tuple[_State, int] | None], state: _State) -> bytes:
    text = bytearray()
    while (step := came_from[state]) is not None:
        state, byte = step
        text.append(byte)
    text.reverse()
    return bytes(text)


def _prepare(language: Language) -> tuple[list[Automaton], Callable[[_Vector], int]]:
    """Returns the automata of the distinct leaves, and the expression as a function of values."""
    numbers: dict[_Leaf, int] = {}
    value = _to_function(language, numbers)
    automata = []
    for leaf in numbers:
        if isinstance(leaf, Atom):
            built = automaton_of(leaf)
            if built is None:
                raise ValueError(f"operator {leaf.operator!r} is not regular")
        else:
            built = automaton.of_intervals(leaf)
        automata.append(built)
    return automata, value


def _to_function(language: Language, numbers: dict[_Leaf, int]) -> Callable[[_Vector], int]:
    """Returns the expression as a function of its leaves' values, in Kleene's three-valued logic.

    The three values are the fates of a state; False and True are the first two of them.
    """
    if isinstance(language, Pieces | Literal):
        leaf: _Leaf = language.cuts if isinstance(language, Pieces) else language.atom
        place = numbers.setdefault(leaf, len(numbers))
        if isinstance(language, Literal) and not language.positive:
            return lambda values: _NOT[values[place]]
        return lambda values: values[place]
    parts = [_to_function(part, numbers) for part in language.parts]
    decisive, idle = (UNIVERSAL, DEAD) if isinstance(language, Some) else (DEAD, UNIVERSAL)

    def joined(values: _Vector) -> int:
        result = idle
        for part in parts:
            value = part(values)
            if value == decisive:
                return decisive
            if value == OPEN:
                result = OPEN
        return result

    return joined


def _is_opaque(atom: Atom) -> bool:
    try:
        return automaton_of(atom) is None
    except LimitError:
        return False


def _with(language: Language, case: dict[Atom, bool]) -> Language:
    if isinstance(language, Literal):
        if language.atom not in case:
            return language
        return ANY_TEXT if case[language.atom] is language.positive else NO_TEXT
    if isinstance(language, Pieces):
        return language
    join = some if isinstance(language, Some) else every
    return join(_with(part, case) for part in language.parts)


def _points(language: Language) -> list[bytes] | None:
    """Returns the texts of a language that is visibly a few single texts, else None."""
    if not isinstance(language, Pieces):
        return None
    keys = [line.single(tuple(c for c in piece if c)) for piece in line.pieces(language.cuts)]
    return None if None in keys else [key[1] for key in keys]  # type: ignore[index,misc]


def _contradicts(case: dict[Atom, bool]) -> bool:
    for (a, a_holds), (b, b_holds) in combinations(case.items(), 2):
        if a_holds and b_holds:
            if _ask("intersects", a, b) is False or _ask("intersects", b, a) is False:
                return True
        elif a_holds != b_holds:
            held, missed = (a, b) if a_holds else (b, a)
            if _ask("covers", missed, held) is True:
                return True
    return False


def _ask(question: str, atom: Atom, other: Atom) -> bool | None:
    """Returns an operator's answer; None, counted, if it raises or answers something else."""
    try:
        answer = getattr(registry.get(atom.operator), question)(atom.constant, other)
    except Exception:  # noqa: BLE001  extension code may raise anything
        answer = NotImplemented
    if answer is None or answer is True or answer is False:
        return answer
    failures.add(atom.operator)
    return None


def unknown_operators(language: Language) -> Iterator[str]:
    """Returns the names of unregistered operators in the expression."""
    return (a.operator for a in atoms_of(language) if registry.find(a.operator) is None)
