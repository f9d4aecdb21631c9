"""`Operator` and `Registry`: operators on text that are not intervals.

An *atom* is such an operator with its constant: the set of accepted texts. If the operator gives an
automaton, the atom is *regular* and decided exactly. Otherwise it is *opaque*: it brings `covers`
and `intersects` of its own. An operator of an unregistered name is *unknown*: it can be forwarded,
not evaluated. Operators are foreign code, so their errors and answers are never trusted: a failure
is counted in `failures` and gets the safe answer.

Source: CU-CS-946-03 §4 and figures 1 and 2 (name, index, apply, covers).
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from contrada.errors import ExtensionError, InvalidFilterError, LimitError, UnknownOperatorError
from contrada.model.languages import automaton, casefold
from contrada.model.languages.work_budget import Work

AUTOMATON_WORK_MAX: Final = 4_000_000
"""Steps, of at most 1 µs, to build the automaton of a constant. Beyond it: the safe answer."""

OPERATOR_NAME: Final = re.compile(r"[^\W\d]\w*(<=|>=|[<>=~])?|&&")
"""The names of registered operators: those that the text syntax reads as an operator."""

KEYWORDS: Final = frozenset(
    {"and", "or", "not", "in", "between", "any", "none", "of", "but", "exists", "absent", "nothing"}
    | {"prefix", "suffix", "contains", "matches", "wildcard", "cidr", "nocase", "everything"}
    | {"null", "true", "false", "inf", "nan", "every", "by", "within"}
)
"""The words of the text syntax: no operator has such a name, and an attribute's is quoted."""

INDEX_FIRST: Final = 14
"""Indices below belong to the built-in operators that are intervals (see `operators`)."""

_FITS: Final[dict[tuple[bool, bool], Callable[[bytes, bytes], bool]]] = {
    (True, True): bytes.__eq__,
    (True, False): bytes.startswith,
    (False, True): bytes.endswith,
    (False, False): bytes.__contains__,
}
"""Whether the constant must be at the beginning, and at the end; and the test of this."""


class Tally(Counter[str]):
    """Counts of a few named events in this process; several threads may add to one.

    An interpreter with one lock loses no count: `update` changes an entry in one step, while
    `tally[name] += 1` takes several, between which another thread may run.
    """

    def add(self, name: str) -> None:
        """Counts one event."""
        self.update((name,))


failures: Final = Tally()
"""Errors and invalid answers, by operator."""


class Atom(NamedTuple):
    """An operator's name and its constant. Text constants are bytes, as all text is."""

    operator: str
    constant: bytes


class Operator:
    """A named set of texts for each constant.

    Subclass it, set `name`, and define `apply`. The other methods are optional: undecided cases get
    the safe answer, counted. Registration assigns `index`.

    Source: CU-CS-946-03 §4; figure 2 (ExtendedOp).
    """

    name: str = ""
    index: int = -1

    def check(self, constant: bytes) -> None:
        """Raises InvalidFilterError for an invalid constant of this operator."""

    def apply(self, value: bytes, constant: bytes) -> bool:
        """Whether a notification's value satisfies the operator with a filter's constant."""
        raise NotImplementedError(f"operator {self.name!r} defines no apply")

    def automaton(self, constant: bytes) -> automaton.Automaton | None:
        """Returns the automaton of the texts, its rows `bytes` or `array`; None if not regular."""
        return None

    def implied(self, constant: bytes) -> Atom | None:
        """Returns an atom of `contains`, `suffix` or `nocase` that this one implies, or None."""
        return None

    def examples(self, constant: bytes) -> tuple[bytes, ...]:
        """Returns texts to try before automata are built; the operator need not accept them."""
        return (constant,)

    def first(self, constant: bytes) -> bytes | None:
        """Returns the shortest, lowest text if there is no longest; None if it is not known."""
        return None

    def covers(self, constant: bytes, other: Atom) -> bool | None:
        """Whether every text of the other atom is one of this; None if undecided."""
        return None

    def intersects(self, constant: bytes, other: Atom) -> bool | None:
        """Whether some text is in this and the other atom; None if undecided."""
        return None


class Registry:
    """The operators on text by name. Names are unique; an index never changes."""

    def __init__(self) -> None:
        self._operators: dict[str, Operator] = {}
        self._foreign: set[str] = set()

    def register(self, *operators: Operator) -> None:
        """Adds operators, all or none. The same class again is no error.

        Raises ExtensionError for a name of another class, a word of the text syntax, or a name that
        the syntax cannot read.
        """
        for operator in operators:
            name: object = operator.name
            if not isinstance(name, str) or not OPERATOR_NAME.fullmatch(name):
                reason = "an operator's name is letters, digits and _, then maybe < <= > >= = ~"
                raise ExtensionError(str(name), reason)
            if name in KEYWORDS:
                raise ExtensionError(name, "this is a word of the text syntax")
            if type(self._operators.get(name, operator)) is not type(operator):
                raise ExtensionError(name, "an operator of this name is registered already")
            if name not in self._operators:
                self._foreign.add(name)
        self.add(*operators)

    def add(self, *operators: Operator) -> None:
        """Adds operators with valid names; those already there remain."""
        for operator in operators:
            if operator.name not in self._operators:
                operator.index = INDEX_FIRST + len(self._operators)
                self._operators[operator.name] = operator

    def is_own(self, operator: Operator) -> bool:
        """Whether it is built in, so that its answers need no check."""
        return operator.name not in self._foreign

    def find(self, name: str) -> Operator | None:
        """Returns the operator of this name, or None."""
        return self._operators.get(name)

    def get(self, name: str) -> Operator:
        """Returns the operator of this name. Raises UnknownOperatorError."""
        operator = self._operators.get(name)
        if operator is None:
            raise UnknownOperatorError(name, self.names())
        return operator

    def names(self) -> tuple[str, ...]:
        """Returns all names in the order of their indices."""
        return tuple(self._operators)


registry: Final = Registry()
"""The operators of this process. Extensions add to it when they are loaded."""


def atom_of(operator: str, constant: bytes) -> Atom:
    """Returns an atom, its constant checked. Raises UnknownOperatorError, InvalidFilterError."""
    try:
        registry.get(operator).check(constant)
    except (UnknownOperatorError, InvalidFilterError):
        raise
    except Exception as error:
        failures.add(operator)
        reason = f"the operator's check failed with {type(error).__name__}"
        raise InvalidFilterError(operator, (constant,), reason) from error
    return Atom(operator, constant)


def implied_atom(atom: Atom) -> Atom | None:
    """Returns the atom that the operator declares as implied by this one, or None.

    An extension's declaration counts only if the automata prove it: a wrong one would lose matches.
    A wrong or unproved one is counted in `failures`.
    """
    operator = registry.find(atom.operator)
    return None if operator is None else _implied(operator, atom.constant)


@lru_cache(maxsize=automaton.AUTOMATA_CACHED_MAX)
def _implied(operator: Operator, constant: bytes) -> Atom | None:
    try:
        answer: object = operator.implied(constant)
        if answer is None or registry.is_own(operator):
            return answer  # type: ignore[return-value]
        if (
            isinstance(answer, Atom)
            and type(answer.constant) is bytes
            and isinstance(registry.find(answer.operator), PlainOperator)
            and (whole := automaton_of(Atom(operator.name, constant))) is not None
            and (part := automaton_of(answer)) is not None
        ):
            with Work("AUTOMATON_WORK_MAX", AUTOMATON_WORK_MAX):
                if automaton.difference(whole, part).fates[0] == automaton.DEAD:
                    return answer
    except Exception:  # noqa: BLE001, S110  extension code may raise anything; it is counted
        pass
    failures.add(operator.name)
    return None


def automaton_of(atom: Atom) -> automaton.Automaton | None:
    """Returns an atom's automaton, built once; None if opaque or unknown. Raises LimitError."""
    operator = registry.find(atom.operator)
    built = None if operator is None else _automaton(operator, atom.constant)
    if isinstance(built, LimitError):
        raise LimitError(built.limit, built.maximum, built.size)
    return built


@lru_cache(maxsize=automaton.AUTOMATA_CACHED_MAX)
def _automaton(operator: Operator, constant: bytes) -> automaton.Automaton | LimitError | None:
    """As `automaton_of`; caches that a limit was reached, too, since that took longest."""
    try:
        with Work("AUTOMATON_WORK_MAX", AUTOMATON_WORK_MAX):
            answer: automaton.Automaton | None = operator.automaton(constant)
            if answer is None or registry.is_own(operator) or automaton.is_sound(answer):
                return answer
    except LimitError as error:
        return error.with_traceback(None)
    except Exception:  # noqa: BLE001, S110  extension code may raise anything; it is counted
        pass
    failures.add(operator.name)
    return None


def sequence_automaton(
    parts: Sequence[Sequence[bytes]], *, anything_before: bool, anything_after: bool
) -> automaton.Automaton:
    """Returns the automaton of parts, each of several spellings, maybe with any bytes around."""
    edges: list[list[tuple[frozenset[int], int]]] = [[]]
    state = 0
    if anything_before:
        edges[0].append((automaton.BYTES, 0))
    for spellings in parts:
        end = len(edges)
        edges.append([])
        for spelling in spellings:
            at = state
            for byte in spelling[:-1]:
                edges.append([])
                edges[at].append((frozenset((byte,)), len(edges) - 1))
                at = len(edges) - 1
            edges[at].append((frozenset((spelling[-1],)), end))
        state = end
    if anything_after:
        edges[state].append((automaton.BYTES, state))
    return automaton.determinise(edges, frozenset((0,)), frozenset((state,)))


class PlainOperator(Operator):
    """Texts that have the constant in them: at the beginning, the end, both, or anywhere.

    `nocase` compares folded text; the constant must then be UTF-8, and is held folded. Two such
    operators are compared by their constants alone, so that few automata are built.
    """

    def __init__(
        self, name: str, *, begins: bool = False, ends: bool = False, nocase: bool = False
    ) -> None:
        self.name = name
        self.begins, self.ends, self.nocase = begins, ends, nocase
        self._fits = _FITS[begins, ends]

    def check(self, constant: bytes) -> None:
        """Raises InvalidFilterError: without case only UTF-8 is compared."""
        if self.nocase and not is_utf8(constant):
            reason = "without case only UTF-8 text can be compared"
            raise InvalidFilterError(self.name, (constant,), reason)

    def apply(self, value: bytes, constant: bytes) -> bool:
        if self.nocase:
            return self._fits(casefold.fold(value), casefold.fold(constant))
        return self._fits(value, constant)

    def automaton(self, constant: bytes) -> automaton.Automaton:
        """Returns an automaton; with case it has one state per byte of the constant, and one."""
        if not self.nocase:
            return automaton.search_automaton(constant, anything_after=not self.ends)
        return sequence_automaton(
            [casefold.spellings(character) for character in constant.decode()],
            anything_before=not self.begins,
            anything_after=not self.ends,
        )

    def first(self, constant: bytes) -> bytes:
        """Returns the constant in its first spelling; of `=` only without case."""
        if not self.nocase or not is_utf8(constant):
            return constant
        spelled = map(casefold.spellings, constant.decode())
        return b"".join(min(each, key=lambda text: (len(text), text)) for each in spelled)

    def covers(self, constant: bytes, other: Atom) -> bool | None:
        """Decides about another plain operator that requires at least as much."""
        inner = registry.find(other.operator)
        if not isinstance(inner, PlainOperator) or inner.nocase > self.nocase:
            return None
        if inner.begins < self.begins or inner.ends < self.ends:
            return None
        return self.apply(other.constant, constant) or None

    def intersects(self, constant: bytes, other: Atom) -> bool | None:
        """Decides about another plain operator with other beginnings, or other ends."""
        two = registry.find(other.operator)
        if not isinstance(two, PlainOperator):
            return None
        a, b = constant, other.constant
        if self.nocase or two.nocase:
            # A part of a character does not fold as the whole character does.
            if not (self.nocase or is_utf8(a)) or not (two.nocase or is_utf8(b)):
                return None
            a, b = casefold.fold(a), casefold.fold(b)
        if self.begins and self.ends:
            return None if two._fits(a, b) else False
        if two.begins and two.ends:
            return None if self._fits(b, a) else False
        if self.begins and two.begins and not (a.startswith(b) or b.startswith(a)):
            return False
        return False if self.ends and two.ends and not (a.endswith(b) or b.endswith(a)) else None


def is_utf8(text: bytes) -> bool:
    """Whether bytes are text."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


registry.add(
    PlainOperator("suffix", ends=True),
    PlainOperator("contains"),
    PlainOperator("= nocase", begins=True, ends=True, nocase=True),
    PlainOperator("prefix nocase", begins=True, nocase=True),
    PlainOperator("suffix nocase", ends=True, nocase=True),
    PlainOperator("contains nocase", nocase=True),
)
