"""Runs of a predicate, one for each way that its truth tests can go, as a tree of forks.

Where a run asks for a truth value, or reads a field that may hold values of several kinds, there is
a fork: each option gives an answer and narrows sets of attributes. Runs go depth first; each later
one repeats the answers up to the last fork that has an option left. Options without a value are not
taken, so that what is asked twice is answered alike.

A fork that is done becomes boxes, sets by attribute: those that its options' runs match, within the
options' sets. An option's own set is widened to what was known before the fork where the other
option matches the box too: `a or b` becomes `a`, or `b`; not `a`, or `not a and b`.

Source: EPFL 2503 §6.6.1 (filters that cover what they stand for).
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple, NoReturn

from contrada.model import ValueSet
from contrada.model.algebra.value_set import EVERYTHING
from contrada.model.domains import line
from contrada.model.domains.line import Cuts

PATHS_MAX: Final = 256
"""Ways that a predicate's runs go. Beyond it: what is not explored yet stays at the subscriber,
with the constraints up to there."""

FORKS_MAX: Final = 1_000
"""Truth tests of one run. Beyond it: this way stays at the subscriber, with the constraints so
far."""

Sets = dict[str, ValueSet]

NO_BUILTINS: Final[dict[str, Any]] = {}
"""The builtins of code that is run: by these its frames are known."""


class GivenUpError(BaseException):
    """A run touches what is not recorded. Nothing that the code catches is this."""


class RestartError(BaseException):
    """A run met what all runs must know of before they begin."""


class RaisesError(Exception):
    """The predicate raises here, with each value for which a run comes here."""


class Stop(NamedTuple):
    """An answer that ends the run: what comes here is not recorded."""

    reason: str


class CodePlace(NamedTuple):
    """An instruction of a predicate."""

    code: CodeType
    at: int


class LiftingStep(NamedTuple):
    """One thing that became of a place: a set of an attribute, or a reason why it stays."""

    place: CodePlace | None
    name: str
    values: ValueSet | None
    reason: str


class Option:
    """One way on from a fork."""

    __slots__ = ("answer", "boxes", "sets")

    def __init__(self, answer: Any, sets: Sets) -> None:
        self.answer = answer
        self.sets = sets
        self.boxes: list[Sets] = []


class Fork:
    """A place where runs part. `known` is what was known of the attribute that a test is about."""

    __slots__ = ("at", "is_weak", "known", "name", "options")

    def __init__(self, name: str, options: list[Option], known: ValueSet | None, is_weak: bool):
        self.name = name
        self.options = options
        self.known = known
        self.is_weak = is_weak
        self.at = 0

    def folded(self) -> list[Sets]:
        """The boxes of all options, within their sets."""
        if len(self.options) == 1:
            return [{**self.options[0].sets, **box} for box in self.options[0].boxes]
        if len(self.options) == 2 and self.known is not None:
            first, second = self.options
            return [*self._beside(first, second), *self._beside(second, first)]
        return [{**each.sets, **box} for each in self.options for box in each.boxes]

    def _beside(self, option: Option, other: Option) -> Iterator[Sets]:
        """The boxes of one option of a test, widened where the other one's hold them too."""
        assert self.known is not None
        # The other option's boxes that hold whatever the tested attribute is, so here as well.
        widening = [box for box in other.boxes if self.name not in box]
        for box in option.boxes:
            if self.name not in box and any(_covers(each, box) for each in widening):
                yield {self.name: self.known, **box}
            else:
                yield {**option.sets, **box}


def _covers(box: Sets, other: Sets) -> bool:
    """Whether a box shows to hold another one."""
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
    """The way of the current run: the forks so far, and what is known of the attributes."""

    def __init__(self) -> None:
        self.home: CodePlace | None = None
        self.forks: list[Fork] = []
        self.steps: dict[tuple[CodePlace | None, str, str], LiftingStep] = {}
        self.has_weak_tests = False
        self.is_cut = False
        self.handles_errors = False
        self._begin()

    def _begin(self) -> None:
        self.depth = 0
        self.sets: Sets = {}
        self.values: dict[str, Any] = {}
        self.reason: LiftingStep | None = None

    def replayed(self, name: str) -> Option | None:
        """The option to take here again; None where the run is somewhere new."""
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
        """Part here: each choice gives an answer, within sets of attributes."""
        options = []
        for answer, sets in choices:
            within = {each: self._narrowed(each, values) for each, values in sets.items()}
            if not any(map(_shows_empty, within.values())):
                options.append(Option(answer, within))
        return self._taken(Fork(name, options, None, False))

    def test(
        self,
        name: str,
        answers: list[tuple[Any, ValueSet]],
        whole: ValueSet | None = None,
        *,
        is_weak: bool = False,
    ) -> Option:
        """Part here: each answer holds for a set of one attribute, all within the whole."""
        known = self.sets.get(name, EVERYTHING)
        options = []
        for answer, values in answers:
            if answer is True:
                step = LiftingStep(self.place(), name, values, "")
                self.steps.setdefault((step.place, name, ""), step)
            within = values if known is whole else self._narrowed(name, values)
            if not _shows_empty(within):
                options.append(Option(answer, {name: within}))
        return self._taken(Fork(name, options, known, is_weak))

    def _taken(self, fork: Fork) -> Option:
        if len(self.forks) >= FORKS_MAX:
            self.give_up(f"more than FORKS_MAX = {FORKS_MAX} truth tests", fork.name)
        if not fork.options:
            self.give_up("no value comes here", fork.name)
        self.forks.append(fork)
        self.depth += 1
        option = fork.options[0]
        self.sets.update(option.sets)
        return option

    def answer(self, option: Option) -> Any:
        """The answer of an option; what it raises is raised."""
        answer = option.answer
        if type(answer) is Stop:
            self.give_up(answer.reason)
        if isinstance(answer, RaisesError):
            raise RaisesError(*answer.args)
        return answer

    def _narrowed(self, name: str, values: ValueSet) -> ValueSet:
        known = self.sets.get(name)
        if known is None or (known.text is None and _is_inside(known.line, values)):
            return values
        return known & values

    def give_up(self, reason: str, name: str = "") -> NoReturn:
        """End the run: what comes here is left to the predicate itself."""
        if self.reason is None:
            self.reason = LiftingStep(self.place(), name, None, reason)
        raise GivenUpError(reason)

    def place(self) -> CodePlace | None:
        """The predicate's present instruction; the whole predicate where its result is tested."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_builtins is not NO_BUILTINS:
            frame = frame.f_back
        return self.home if frame is None else CodePlace(frame.f_code, frame.f_lasti)

    def explore(self, run: Callable[[], list[Sets]]) -> list[Sets]:
        """The boxes of all runs. `run` gives those of one, from where its forks end."""
        paths = 0
        while True:
            self._begin()
            boxes = run()
            paths += 1
            if self.reason is not None:
                self.steps.setdefault(_key(self.reason), self.reason)
            while self.forks:
                fork = self.forks[-1]
                # Back to the last fork with an option left. A fork that is done becomes boxes.
                fork.options[fork.at].boxes = boxes
                fork.at += 1
                if fork.at < len(fork.options):
                    if paths < PATHS_MAX:
                        break
                    self._leave(fork)
                boxes = fork.folded()
                if fork.is_weak and boxes:
                    self.has_weak_tests = True
                self.forks.pop()
            if not self.forks:
                return boxes

    def _leave(self, fork: Fork) -> None:
        """Leave the options that are not explored to the predicate itself."""
        for option in fork.options[fork.at :]:
            option.boxes = [{}]  # No constraint: the filters match more, never less.
        self.is_cut = True
        step = LiftingStep(
            None, "", None, f"more than PATHS_MAX = {PATHS_MAX} ways through the code"
        )
        self.steps.setdefault(_key(step), step)


def _shows_empty(values: ValueSet) -> bool:
    return not values.line and (values.text is None or values.shows_empty())


def _is_inside(cuts: Cuts, values: ValueSet) -> bool:
    """Whether a set shows to lie within cuts, seen fast: most sets are narrowed just once."""
    if values.text is None:
        return line.includes(cuts, values.line)
    return not values.line and cuts == line.ALL_TEXT


def _key(step: LiftingStep) -> tuple[CodePlace | None, str, str]:
    return step.place, step.name, step.reason
