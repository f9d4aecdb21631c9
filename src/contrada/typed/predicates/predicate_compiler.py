"""`lift`: a predicate as filters, with the part that stays at the subscriber.

The filters match everything that the predicate accepts, and nothing else if they are exact. If they
are not, the predicate decides on the received objects. A run that reads an unrecorded value ends
only its own path through the code.

Source: EPFL 2503 §5.3.3 and §5.3.4 (filters as closures, their restrictions), §6.6.1 (coverage).
"""

import linecache
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from types import FunctionType
from typing import Any, Final

from contrada.model import Filter, FilterSet
from contrada.model.algebra import boxes
from contrada.typed.predicates import path_explorer
from contrada.typed.predicates.captured_constants import ChangedError
from contrada.typed.predicates.name_resolution import (
    identity_enums,
    make_frozen_copy,
    make_run_copy,
)
from contrada.typed.predicates.predicate_code import CodeAnalysis, analysis_of, may_raise_here
from contrada.typed.predicates.recorded_objects import (
    EnvelopeValue,
    Name,
    ObjectValue,
    PredicateRun,
)
from contrada.typed.predicates.recorded_values import Recorded
from contrada.typed.shapes import Shape
from contrada.typed.type_names import names_of

COMPILATIONS_MAX: Final = 8
"""Compilations of a predicate: a method that compares members of another enumeration by `is` begins
a new one. Beyond it: the whole predicate stays at the subscriber."""

UNKNOWN_IDENTITY: Final = (
    "`is` compares with a value other than None, True, False or a member of an enum"
)

Predicate = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class PlanLine:
    """The result of one place of a predicate: a constraint, or the reason for none.

    With both, the predicate decides on the objects that the constraint matches, for this reason.
    `place` is `file:line`, `source` the operand there, where they are known.
    """

    place: str
    source: str
    name: str
    constraint: str
    reason: str

    @property
    def is_lifted(self) -> bool:
        """Whether the result is a constraint."""
        return bool(self.constraint)

    def __str__(self) -> str:
        what = self.reason
        if self.is_lifted:
            again = f", and asked again: {self.reason}" if self.reason else ""
            what = f"{self.name} {self.constraint}{again}"
        elif self.name and self.name not in self.reason:
            what = f"{self.name}: {what}"
        where = f"  [{self.source}]" if self.source else ""
        place = f"{self.place}  " if self.place else ""
        return f"{place}{'lifted' if self.is_lifted else 'stays'}: {what}{where}"


@dataclass(frozen=True)
class CompiledPredicate:
    """The result of lifting a predicate.

    `filters` match everything that it accepts, as constraints on fields alone; there is none if it
    accepts nothing. `predicate` is its frozen copy, which decides on an object unless `is_exact`;
    if it raises, the object does not match. With `takes_envelope` its second argument is the
    envelope.
    """

    filters: Filter | FilterSet
    is_exact: bool
    predicate: Predicate
    takes_envelope: bool
    steps: tuple[path_explorer.CompilationStep, ...] = field(repr=False)

    @cached_property
    def plan(self) -> tuple[PlanLine, ...]:
        """The result of each place of the code, in the order of the runs."""
        return tuple(map(_line, self.steps))

    def explain(self) -> str:
        """Returns the plan as text: the filters, and a line for each place."""
        if self.is_exact:
            head = "lifted exactly"
        else:
            head = "lifted in part; the predicate decides on the matches of these"
        filters = [f"  {str(each) or 'everything'}" for each in self.filters.filters]
        return "\n".join((head, *(filters or ["  nothing"]), *map(str, self.plan)))


def lift(shape: Shape, predicate: Predicate, type_name: Name | None = None) -> CompiledPredicate:
    """Turns a predicate on objects of a class into filters on their notifications.

    A predicate with two parameters without defaults is called with the object and the envelope. It
    runs with recording values, once for each path through its truth tests. `type_name` gives the
    names of obvent classes, for `isinstance`. An unsupported part never raises: it stays at the
    subscriber.

    Cost: some 30 microseconds, and as many for each path. The code is analysed once.
    Source: EPFL 2503 §5.3.4.
    """
    if not isinstance(predicate, FunctionType):
        reason = f"a {type(predicate).__name__} is no function with readable code"
        return _unlifted(predicate, path_explorer.CompilationStep(None, "", None, reason))
    code = predicate.__code__
    analysis = analysis_of(code, code.co_filename)
    refusal, enums = analysis.refusal, identity_enums(predicate, analysis)
    if refusal is None and enums is None:
        refusal = (UNKNOWN_IDENTITY, *analysis.identities[0][1:])
    if refusal is not None:
        reason, inner, at = refusal
        step = path_explorer.CompilationStep(path_explorer.CodePlace(inner, at), "", None, reason)
        return _unlifted(make_frozen_copy(predicate), step)
    compiler = _PredicateCompiler(shape, predicate, analysis, type_name or _obvent_name)
    compiler.tests_identity, compiler.real_enums = analysis.tests_identity, enums or frozenset()
    for _ in range(COMPILATIONS_MAX):
        try:
            return compiler.compile()
        except path_explorer.RestartError:
            continue
    reason = "its methods compare members of too many enumerations by `is`"
    return _unlifted(
        make_frozen_copy(predicate), path_explorer.CompilationStep(None, "", None, reason)
    )


def _obvent_name(cls: type) -> str | None:
    names = names_of(cls)
    return names[-1] if names else None


def _unlifted(predicate: Predicate, step: path_explorer.CompilationStep) -> CompiledPredicate:
    takes_envelope = _takes_envelope(predicate)
    return CompiledPredicate(Filter.of_sets({}), False, predicate, takes_envelope, (step,))


def _takes_envelope(predicate: Predicate) -> bool:
    """Whether a function has a second parameter without a default."""
    if not isinstance(predicate, FunctionType):
        return False
    return predicate.__code__.co_argcount - len(predicate.__defaults__ or ()) == 2


class _PredicateCompiler:
    """Compiles one predicate; begins anew for a setting that all runs must have."""

    def __init__(
        self, shape: Shape, predicate: FunctionType, analysis: CodeAnalysis, type_name: Name
    ) -> None:
        self.shape = shape
        self.predicate = predicate
        self.analysis = analysis
        self.type_name = type_name
        self.tests_identity = False
        self.real_enums: frozenset[type] = frozenset()

    def compile(self) -> CompiledPredicate:
        self.path = path = path_explorer.Path()
        path.handles_errors = self.analysis.has_handlers
        self.methods: dict[FunctionType, FunctionType] = {}
        self.runs = PredicateRun(
            path, self.type_name, self.copy_of, self.tests_identity, self.real_enums
        )
        self.runs.shapes[self.shape.cls] = self.shape
        copy = make_run_copy(self.runs, self.predicate, self.analysis)
        given: tuple[Recorded, ...] = (ObjectValue(self.runs, self.shape),)
        takes_envelope = _takes_envelope(self.predicate)
        if takes_envelope:
            given += (EnvelopeValue(path, "the envelope"),)
        self.is_exact = True
        path.origin = path_explorer.CodePlace(copy.__code__, 0)
        found = path.explore(lambda: self.run(copy, given))
        is_exact = self.is_exact and not path.has_weak_tests and not path.is_cut
        # Boxes of different attributes do not merge.
        are_apart = len({frozenset(each) for each in found}) == len(found)
        merged = found if are_apart else boxes.merge_boxes(found)
        filters = [Filter.of_sets(each) for each in merged]
        return CompiledPredicate(
            filters[0] if len(filters) == 1 else FilterSet(filters),
            is_exact,
            make_frozen_copy(self.predicate),
            takes_envelope,
            tuple(path.steps.values()),
        )

    def run(self, copy: FunctionType, given: tuple[Recorded, ...]) -> list[path_explorer.Sets]:
        """Returns the boxes of one run after its last fork."""
        path = self.path
        matches = False
        try:
            matches = bool(copy(*given))
        except (path_explorer.GivenUpError, ChangedError) as error:
            self.note(str(error))
        except path_explorer.RaisesError as error:
            if path.handles_errors:
                self.note(f"it may raise {error}, and the code handles errors")
        except Exception as error:  # noqa: BLE001  A predicate that raises does not match.
            if path.handles_errors or not _is_pythons_own(error):
                self.note(f"it may raise {type(error).__name__}")
        if path.reason is not None:
            self.is_exact = False
            return [{}]
        return [{}] if matches else []

    def note(self, reason: str) -> None:
        if self.path.reason is None:
            self.path.reason = path_explorer.CompilationStep(self.path.origin, "", None, reason)

    def copy_of(self, function: FunctionType) -> FunctionType:
        """Returns the copy of a method that a run may call. Ends the run if there is none."""
        found = self.methods.get(function)
        if found is not None:
            return found
        analysis = analysis_of(function.__code__, function.__code__.co_filename)
        if analysis.refusal is not None:
            self.path.give_up(f"{function.__qualname__}: {analysis.refusal[0]}")
        enums = identity_enums(function, analysis)
        if enums is None:
            self.path.give_up(f"{function.__qualname__}: {UNKNOWN_IDENTITY}")
        if not enums <= self.real_enums or analysis.tests_identity > self.tests_identity:
            self.real_enums |= enums
            self.tests_identity = True
            raise path_explorer.RestartError
        self.path.handles_errors = self.path.handles_errors or analysis.has_handlers
        copy = self.methods[function] = make_run_copy(self.runs, function, analysis)
        return copy


def _recorders(root: type[Recorded] = Recorded) -> list[str]:
    known: list[type[Recorded]] = root.__subclasses__()
    return [root.__name__, *(name for each in known for name in _recorders(each))]


def _is_pythons_own(error: Exception) -> bool:
    """Whether an error comes from real values, with no recording value involved."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None or last.tb_frame.f_builtins is not path_explorer.NO_BUILTINS:
        return False
    return may_raise_here(last.tb_frame.f_code, last.tb_lasti, error, _recorders())


def _line(step: path_explorer.CompilationStep) -> PlanLine:
    constraint = "" if step.values is None else str(step.values)
    if step.place is None:
        return PlanLine("", "", step.name, constraint, step.reason)
    code, at = step.place
    line, end_line, start, end = list(code.co_positions())[at // 2]
    source = ""
    if line is not None and line == end_line:
        text = linecache.getline(code.co_filename, line).encode()
        source = text[start:end].decode(errors="replace").strip()
    return PlanLine(f"{code.co_filename}:{line}", source, step.name, constraint, step.reason)
