"""`Path`: the runs of a predicate, one for each path through its truth tests, as a tree of forks.

A truth test is a fork, and so is reading a field with values of several kinds. Each option gives an
answer and narrows sets of attributes. Runs go depth first; each later run repeats the answers up to
the last fork with an option left. An option without values is not explored, so a repeated test has
the same answer.

A finished fork becomes boxes, that is, sets by attribute: those of its options' runs that match,
within the options' sets. If both options match a box, the box keeps the set known before the fork:
`a or b` becomes `a`, or `b`; not `a`, or `not a and b`.

Source: EPFL 2503 §6.6.1 (filters that cover what they represent).
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple, NoReturn

from contrada.model import ValueSet
from contrada.model.algebra.value_set import EVERYTHING
from contrada.model.domains import line
from contrada.model.domains.line import Cuts

PATHS_MAX: Final = 256
"""Paths of a predicate's runs. Beyond it: unexplored paths stay at the subscriber."""

FORKS_MAX: Final = 1_000
"""Truth tests of one run. Beyond it: the rest of its path stays at the subscriber."""

Sets = dict[str, ValueSet]

NO_BUILTINS: Final[dict[str, Any]] = {}
"""The builtins of code in a run, by which its frames are recognized."""


class GivenUpError(BaseException):
    """A run uses an unrecorded value. A BaseException, so that no handler catches it."""


class RestartError(BaseException):
    """A run needs a setting that all runs must have from their beginning."""


class RaisesError(Exception):
    """The predicate raises here, for each value of the present path."""


class Stop(NamedTuple):
    """An answer that ends the run: its value is not recorded."""

    reason: str


class CodePlace(NamedTuple):
    """An instruction of a predicate."""

    code: CodeType
    at: int


class CompilationStep(NamedTuple):
    """One result of a place: a set of an attribute, or the reason for none.

    With both, objects in the set are left to the predicate, for this reason.
    """

    place: CodePlace | None
    name: str
    values: ValueSet | None
    reason: str


@dataclass(slots=True, eq=False)
class Option:
    """One continuation of a fork."""

    answer: Any
    sets: Sets
    boxes: list[Sets] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Fork:
    """A place where paths part. `known` is the set of the tested attribute before it.

    `weakness` is the reason why the predicate decides on objects in the sets, "" if it need not.
    """

    name: str
    options: list[Option]
    known: ValueSet | None = None
    weakness: str = ""
    at: int = 0

    def fold(self) -> list[Sets]:
        """Returns the boxes of all options, within their sets."""
        if len(self.options) == 1:
            return [{**self.options[0].sets, **box} for box in self.options[0].boxes]
        if len(self.options) == 2 and self.known is not None:
            first, second = self.options
            return [*self._widen(first, second), *self._widen(second, first)]
        return [{**each.sets, **box} for each in self.options for box in each.boxes]

    def _widen(self, option: Option, other: Option) -> Iterator[Sets]:
        """Yields the boxes of one option, widened where those of the other contain them."""
        assert self.known is not None
        # Boxes of the other option without the tested attribute hold for all its values, here too.
        widening = [box for box in other.boxes if self.name not in box]
        for box in option.boxes:
            if self.name not in box and any(_covers(each, box) for each in widening):
                yield {self.name: self.known, **box}
            else:
                yield {**option.sets, **box}


def _covers(box: Sets, other: Sets) -> bool:
    for name, mine in box.items():
        theirs = other.get(name)
        if theirs is None:
            return False
        if mine.text is None and theirs.text is None:
            if not line.includes(mine.line, theirs.line):
                return False
        elif mine.form() != theirs.form():
            return False
    return True


class Path:
    """The path of the current run: its forks, and the known sets of the attributes."""

    def __init__(self) -> None:
        self.origin: CodePlace | None = None
        self.forks: list[Fork] = []
        self.steps: dict[tuple[CodePlace | None, str, str], CompilationStep] = {}
        self.has_weak_tests = False
        self.is_cut = False
        self.handles_errors = False
        self._begin()

    def _begin(self) -> None:
        self.depth = 0
        self.sets: Sets = {}
        self.values: dict[str, Any] = {}
        self.reason: CompilationStep | None = None

    def replay(self, name: str) -> Option | None:
        """Returns the option to repeat here; None at a new place."""
        depth = self.depth
        if depth == len(self.forks):
            return None
        fork = self.forks[depth]
        if fork.name != name:
            self.give_up("it does not do the same each time", name)
        self.depth = depth + 1
        option = fork.options[fork.at]
        self.sets.update(option.sets)
        return option

    def fork(self, name: str, choices: Iterable[tuple[Any, Sets]]) -> Option:
        """Forks: each choice gives an answer, within sets of attributes."""
        options = []
        for answer, sets in choices:
            within = {each: self._narrow(each, values) for each, values in sets.items()}
            if not any(map(ValueSet.shows_empty, within.values())):
                options.append(Option(answer, within))
        return self._take(Fork(name, options))

    def test(
        self,
        name: str,
        answers: list[tuple[Any, ValueSet]],
        whole: ValueSet | None = None,
        *,
        weakness: str = "",
    ) -> Option:
        """Forks: each answer holds for a set of one attribute, all within the whole."""
        known = self.sets.get(name, EVERYTHING)
        options = []
        for answer, values in answers:
            if answer is True:
                step = CompilationStep(self.place(), name, values, weakness)
                self.steps.setdefault((step.place, name, ""), step)
            within = values if known is whole else self._narrow(name, values)
            if not within.shows_empty():
                options.append(Option(answer, {name: within}))
        return self._take(Fork(name, options, known, weakness))

    def _take(self, fork: Fork) -> Option:
        if len(self.forks) >= FORKS_MAX:
            self.give_up(f"more than FORKS_MAX = {FORKS_MAX} truth tests", fork.name)
        if not fork.options:
            self.give_up("no value reaches this test", fork.name)
        self.forks.append(fork)
        self.depth += 1
        option = fork.options[0]
        self.sets.update(option.sets)
        return option

    def answer(self, option: Option) -> Any:
        """Returns the answer of an option, or raises it if it is an error."""
        answer = option.answer
        if type(answer) is Stop:
            self.give_up(answer.reason)
        if isinstance(answer, RaisesError):
            raise RaisesError(*answer.args)
        return answer

    def _narrow(self, name: str, values: ValueSet) -> ValueSet:
        known = self.sets.get(name)
        if known is None or (known.text is None and _is_inside(known.line, values)):
            return values
        return known & values

    def give_up(self, reason: str, name: str = "") -> NoReturn:
        """Ends the run: this path is left to the predicate itself."""
        if self.reason is None:
            self.reason = CompilationStep(self.place(), name, None, reason)
        raise GivenUpError(reason)

    def place(self) -> CodePlace | None:
        """Returns the present instruction; the whole predicate while its result is tested."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_builtins is not NO_BUILTINS:
            frame = frame.f_back
        return self.origin if frame is None else CodePlace(frame.f_code, frame.f_lasti)

    def explore(self, run: Callable[[], list[Sets]]) -> list[Sets]:
        """Returns the boxes of all runs. `run` returns those of one, after its last fork."""
        paths = 0
        while True:
            self._begin()
            boxes = run()
            paths += 1
            if self.reason is not None:
                self.steps.setdefault(_key(self.reason), self.reason)
            while self.forks:
                fork = self.forks[-1]
                # Returns to the last fork with an option left. A finished fork becomes boxes.
                fork.options[fork.at].boxes = boxes
                fork.at += 1
                if fork.at < len(fork.options):
                    if paths < PATHS_MAX:
                        break
                    self._abandon(fork)
                boxes = fork.fold()
                if fork.weakness and boxes:
                    self.has_weak_tests = True
                self.forks.pop()
            if not self.forks:
                return boxes

    def _abandon(self, fork: Fork) -> None:
        """Leaves the unexplored options to the predicate itself."""
        for option in fork.options[fork.at :]:
            option.boxes = [{}]  # No constraint: the filters match more, never less.
        self.is_cut = True
        reason = f"more than PATHS_MAX = {PATHS_MAX} ways through the code"
        step = CompilationStep(None, "", None, reason)
        self.steps.setdefault(_key(step), step)


def _is_inside(cuts: Cuts, values: ValueSet) -> bool:
    """Whether a set provably lies within cuts; fast, as most sets are narrowed just once."""
    if values.text is None:
        return line.includes(cuts, values.line)
    return not values.line and cuts == line.ALL_TEXT


def _key(step: CompilationStep) -> tuple[CodePlace | None, str, str]:
    return step.place, step.name, step.reason
