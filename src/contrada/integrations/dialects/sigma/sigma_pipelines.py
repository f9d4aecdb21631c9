"""`ProcessingPipeline`: steps that change Sigma rules before they become conditions.

`read_pipeline` reads a file of pySigma: a name, a priority, variables, and transformations, each
with conditions on rules, on items of selections, and on names of fields. A transformation, a
condition or a parameter without an exact meaning here is refused with its place; so are files that
change queries of other systems (`postprocessing`, `finalizers`). `WINDOWS` is the pipeline that
applies if none is given: the tables of `log_sources`.

Steps apply in the order of the pipelines' priorities, then as given.

Source: pySigma 2.0.1, documentation of processing pipelines.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from contrada.errors import InputError, LimitError, RefusedRuleError
from contrada.integrations.dialects.sigma import sigma_refusals as refusals
from contrada.integrations.dialects.sigma.log_sources import FIELDS
from contrada.integrations.dialects.sigma.sigma_items import RuleState, SelectionReader
from contrada.integrations.dialects.sigma.sigma_refusals import DIALECT, refusal, shorten
from contrada.integrations.dialects.sigma.sigma_step_conditions import (
    FIELD_TESTS,
    ITEM_TESTS,
    RULE_TESTS,
    Conditions,
    StepParameters,
    read_conditions,
)
from contrada.integrations.dialects.sigma.sigma_transformations import (
    ACTIONS,
    FIELD_MAPPINGS,
    FieldMapping,
    PipelineStep,
    StepAction,
    map_fields,
)
from contrada.integrations.dialects.yaml_documents import only_document

PIPELINE_STEPS_MAX: Final = 1_000
"""Transformations of a Sigma pipeline, with those nested in others. Beyond it: the pipeline is
refused."""


@dataclass(frozen=True, slots=True)
class ProcessingPipeline:
    """Steps, and the values of placeholders. Those of a smaller priority apply first."""

    name: str
    steps: tuple[PipelineStep, ...]
    priority: int = 0
    placeholders: Mapping[str, Sequence[str]] = field(default_factory=dict)


def apply_pipelines(pipelines: Iterable[ProcessingPipeline], state: RuleState) -> None:
    """Applies all pipelines to a rule, by priority. Raises RefusedRuleError, LimitError."""
    for each in pipelines:
        state.placeholders = {**state.placeholders, **each.placeholders}
    for step in ordered_steps(pipelines):
        step.apply(state)


def ordered_steps(pipelines: Iterable[ProcessingPipeline]) -> list[PipelineStep]:
    """Returns the steps of all pipelines, in the order in which they apply."""
    ordered = sorted(pipelines, key=lambda each: each.priority)
    return [step for each in ordered for step in each.steps]


def load_pipeline(given: str | Path) -> ProcessingPipeline:
    """Returns the pipeline of a file, or that of a name in `NAMED`. Raises InputError."""
    if str(given) in NAMED:
        return NAMED[str(given)]()
    try:
        return read_pipeline(Path(given).read_text("utf-8-sig"), str(given))
    except OSError as error:
        names = ", ".join(NAMED)
        reason = f"cannot be read: {error.strerror}; pipelines with a name: {names}"
        raise InputError(str(given), reason) from None
    except UnicodeDecodeError as error:
        raise InputError(str(given), f"byte {error.start + 1} is not UTF-8") from None
    except (RefusedRuleError, LimitError) as error:
        raise InputError(str(given), str(error)) from None


def read_pipeline(text: str, name: str = "") -> ProcessingPipeline:
    """Returns the pipeline of a YAML text. `name` is used if the text has none.

    Raises RefusedRuleError with the place, and LimitError.
    """
    given = StepParameters(only_document(DIALECT, text, refusals.PIPELINE), "pipeline")
    shown = shorten(given.take("name", str, name))
    given.place = f"pipeline {shown!r}" if shown else "pipeline"
    priority = given.take("priority", int, 0)
    given.take("allowed_backends", list, None)
    values = given.take("vars", dict, {})
    placeholders = {
        str(key): _values(each, f"{given.place}.vars.{key}") for key, each in values.items()
    }
    steps = _StepReader().steps(given.take("transformations", list, []), given.place)
    for part in ("postprocessing", "finalizers"):
        if given.take(part, list, []):
            raise refusal(refusals.QUERIES, part, given.place)
    given.end()
    return ProcessingPipeline(shown, steps, priority, placeholders)


def _values(given: Any, place: str) -> list[str]:
    values = given if isinstance(given, list) else [given]
    if not all(isinstance(each, str | int | float) for each in values):
        raise refusal(refusals.PARAMETER, given, place)
    return [str(each) for each in values]


class _StepReader:
    """Reads the steps of one pipeline."""

    def __init__(self) -> None:
        self._steps = 0

    def steps(self, given: list[Any], place: str) -> tuple[PipelineStep, ...]:
        self._steps += len(given)
        if self._steps > PIPELINE_STEPS_MAX:
            raise LimitError("PIPELINE_STEPS_MAX", PIPELINE_STEPS_MAX, self._steps)
        return tuple(
            self._step(each, f"{place}.transformations[{number}]")
            for number, each in enumerate(given, 1)
        )

    def _step(self, document: Any, place: str) -> PipelineStep:
        given = StepParameters(document, place)
        kind, key = given.take("type", str), given.take("id", str, "")
        rule = read_conditions(given, "rule", RULE_TESTS)
        items = read_conditions(given, "detection_item", ITEM_TESTS)
        fields = read_conditions(given, "field_name", FIELD_TESTS)
        mapping: FieldMapping | None = None
        action: StepAction = map_fields
        if kind in FIELD_MAPPINGS:
            mapping = FIELD_MAPPINGS[kind](given)
        elif kind == "nest":
            action = _nested(self.steps(given.take("items", list), place))
        elif kind in ACTIONS:
            action = ACTIONS[kind](given)
        else:
            raise refusal(refusals.STEP, kind, place)
        given.end()
        return PipelineStep(place, key or place, rule, items, fields, action, mapping)


def _nested(steps: tuple[PipelineStep, ...]) -> StepAction:
    """Returns the action of a nested pipeline, which begins with a state of its own."""

    def act(_: PipelineStep, state: RuleState) -> None:
        outer, state.variables = state.variables, {}
        for step in steps:
            step.apply(state)
        state.variables = outer | state.variables

    return act


# --- the pipeline of Windows --------------------------------------------------------------------


def _constrain_source(step: PipelineStep, state: RuleState) -> None:
    """Adds the constraints of a log source of Windows, and the notes on what is in no table."""
    state.notes = state.source.notes()
    reader = SelectionReader(state.spelling)
    for each in state.source.constraints():
        state.added.append((reader.read(each, "logsource"), False))


def _is_windows(state: RuleState) -> bool:
    sources = state.sources if state.is_correlation else (state.source,)
    return any(each.is_windows for each in sources)


_FREE: Final[Conditions[Any]] = Conditions({})
_PLACE: Final = "pipeline 'windows'"

WINDOWS: Final = ProcessingPipeline(
    "windows",
    (
        PipelineStep(
            _PLACE, "", Conditions({"": _is_windows}), _FREE, _FREE, map_fields, FIELDS.get
        ),
        PipelineStep(_PLACE, "", _FREE, _FREE, _FREE, _constrain_source),
    ),
)
"""The log sources and names of fields of Windows: the pipeline that applies if none is given."""


@cache
def windows_audit() -> ProcessingPipeline:
    """Returns the pipeline for events of Windows' own audit in place of those of Sysmon."""
    return read_pipeline(Path(__file__).with_name("windows_audit.yml").read_text("utf-8"))


NAMED: Final[Mapping[str, Callable[[], ProcessingPipeline]]] = {
    WINDOWS.name: lambda: WINDOWS,
    "windows-audit": windows_audit,
}
"""The pipelines that have a name."""
