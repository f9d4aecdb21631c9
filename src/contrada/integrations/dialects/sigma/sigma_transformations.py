"""`TRANSFORMATIONS`: what the steps of pipelines do with a Sigma rule.

Values that `windash` and `base64offset` expand stay as they are, as in pySigma, except for
`set_value`. Transformations of the list `fields` change no match, and do nothing. Those are refused
that read files, networks or commands, write parts of queries, or guess what a value is.

Source: pySigma 2.0.1, documentation of processing pipelines, section on transformations.
"""

import re
import string
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any, Final, TypeAlias

from contrada.errors import InvalidFilterError, LimitError
from contrada.integrations.dialects.sigma import sigma_refusals as refusals
from contrada.integrations.dialects.sigma.sigma_items import (
    ItemGroup,
    RuleState,
    SelectionItem,
    SelectionReader,
    SigmaSelection,
    change_items,
)
from contrada.integrations.dialects.sigma.sigma_refusals import refusal
from contrada.integrations.dialects.sigma.sigma_step_conditions import (
    Conditions,
    FieldTest,
    ItemTest,
    RuleTest,
    StepParameters,
    check_texts,
    fields_of,
    take_source,
)
from contrada.integrations.dialects.sigma.sigma_values import (
    SPELLED_BYTES_MAX,
    FieldReference,
    Placeholder,
    Scalar,
    SigmaValue,
    Text,
    WildcardSign,
    WildcardText,
    join_parts,
    plain_of,
    plain_part,
    read_value,
    text_of,
)
from contrada.model.domains.values import is_number
from contrada.model.languages import regex_syntax

REPLACING_STEPS_MAX: Final = 10_000_000
"""Steps in which the expressions of `replace_string` can search the values of a Sigma rule, at
worst. Beyond it: the rule is refused."""

StepAction: TypeAlias = Callable[["PipelineStep", RuleState], None]
FieldMapping: TypeAlias = Callable[[str | None], str | list[str] | None]
"""Returns the names of a field, None if it is not mapped."""


@dataclass(frozen=True, slots=True)
class PipelineStep:
    """One transformation of a pipeline, with its conditions. `mapping` is that of fields."""

    place: str
    id: str
    rule: Conditions[RuleTest]
    items: Conditions[ItemTest]
    fields: Conditions[FieldTest]
    action: StepAction
    mapping: FieldMapping | None = None

    def apply(self, state: RuleState) -> None:
        """Changes a rule for which the conditions hold. Raises RefusedRuleError, LimitError."""
        if self.rule.tests and not self.rule.hold(lambda test: test(state)):
            return
        state.applied.add(self.id)
        self.action(self, state)

    def names(self, field: str, state: RuleState) -> list[str]:
        """Returns the names of a field that no item has, as in a correlation."""
        is_asked = not self.rule.tests or self.rule.hold(lambda test: test(state))
        mapped = self.mapping(field) if self.mapping is not None and is_asked else None
        if mapped is None or not self.has_field(field, state):
            return [field]
        return [mapped] if isinstance(mapped, str) else mapped

    def has_field(self, field: str | None, state: RuleState) -> bool:
        """Whether the conditions on names hold."""
        return self.fields.hold(lambda test: test(field, state))

    def change(
        self, state: RuleState, change: Callable[[SelectionItem], SigmaSelection | None]
    ) -> None:
        """Changes the items for which the conditions hold, and marks them."""

        def changed(item: SelectionItem) -> SigmaSelection | None:
            if not self.items.hold(lambda test: test(item, state)):
                return item
            named = fields_of(item)
            if not self.fields.hold(lambda test: any(test(each, state) for each in named)):
                return item
            found = change(item)
            return found if found is None or found is item else self.mark(found, state)

        state.change(changed)

    def mark(self, selection: SigmaSelection, state: RuleState) -> SigmaSelection:
        """Returns the selection with the step's id at each item. Raises LimitError."""

        def marked_item(item: SelectionItem) -> SelectionItem:
            state.count_items(1)
            return replace(item, applied=item.applied | {self.id})

        marked = change_items(selection, marked_item, {})
        assert marked is not None, "marking drops nothing"
        return marked


def map_fields(step: PipelineStep, state: RuleState) -> None:
    """Renames fields, and references to them; several names are alternatives."""
    mapping = step.mapping
    assert mapping is not None, "only steps with a mapping map"

    def names_of(field: str | None) -> str | list[str] | None:
        return mapping(field) if step.has_field(field, state) else None

    def change(item: SelectionItem) -> SigmaSelection:
        values: list[tuple[SigmaValue, ...]] = []
        for value in item.values:
            [*parts] = value
            found = names_of(parts[0].field) if isinstance(parts[0], FieldReference) else None
            if found is None:
                values.append(value)
                continue
            [reference] = parts
            assert isinstance(reference, FieldReference), "a reference stands alone"
            names = [found] if isinstance(found, str) else found
            values += [(reference._replace(field=name),) for name in names]
        if values != [*item.values]:
            item = replace(item, values=tuple(values))
        mapped = names_of(item.field)
        if mapped is None:
            return item
        if isinstance(mapped, str):
            return replace(item, field=mapped)
        return ItemGroup(tuple(replace(item, field=name) for name in mapped), every=False)

    step.change(state, change)


# --- fields -------------------------------------------------------------------------------------


def _table(given: StepParameters) -> dict[str | None, str | list[str]]:
    table: dict[str | None, str | list[str]] = {}
    for field, names in given.take("mapping", dict).items():
        if not isinstance(field, str | None):
            raise refusal(refusals.PARAMETER, field, f"{given.place}.mapping")
        checked = check_texts(names, f"{given.place}.mapping.{field}")
        table[field] = names if isinstance(names, str) else checked
    return table


def _field_name_mapping(given: StepParameters) -> FieldMapping:
    return _table(given).get


def _field_name_prefix_mapping(given: StepParameters) -> FieldMapping:
    table = _table(given)
    if None in table:
        raise refusal(refusals.PARAMETER, None, f"{given.place}.mapping")

    def mapping(field: str | None) -> str | list[str] | None:
        for before, names in table.items():
            assert before is not None, "checked above"
            if field is not None and field.startswith(before):
                rest = field[len(before) :]
                return names + rest if isinstance(names, str) else [each + rest for each in names]
        return None

    return mapping


def _field_name_prefix(given: StepParameters) -> FieldMapping:
    prefix = given.take("prefix", str)
    return lambda field: None if field is None else prefix + field


def _field_name_suffix(given: StepParameters) -> FieldMapping:
    suffix = given.take("suffix", str)
    return lambda field: None if field is None else field + suffix


FIELD_MAPPINGS: Final[Mapping[str, Callable[[StepParameters], FieldMapping]]] = {
    "field_name_mapping": _field_name_mapping,
    "field_name_prefix_mapping": _field_name_prefix_mapping,
    "field_name_prefix": _field_name_prefix,
    "field_name_suffix": _field_name_suffix,
}

# --- rules and items ----------------------------------------------------------------------------


def _add_condition(given: StepParameters) -> StepAction:
    asked = given.take("conditions", dict, {})
    name = given.take("name", str, "_")
    is_template, negated = given.take("template", bool, False), given.take("negated", bool, False)
    if not name.startswith("_"):  # `1 of them` would include it.
        raise refusal(refusals.PARAMETER, name, f"{given.place}.name")
    place = f"{given.place}.conditions"

    def act(step: PipelineStep, state: RuleState) -> None:
        def filled(value: Any) -> Any:
            if isinstance(value, list):
                return [*map(filled, value)]
            if not is_template or not isinstance(value, str):
                return value
            parts = {part: held or None for part, held in asdict(state.source).items()}
            return string.Template(value).safe_substitute(parts)

        selection = {field: filled(value) for field, value in asked.items()}
        added = step.mark(SelectionReader(state.spelling).read(selection, place), state)
        state.added.append((added, negated))

    return act


def _change_logsource(given: StepParameters) -> StepAction:
    source = take_source(given)

    def act(_: PipelineStep, state: RuleState) -> None:
        state.source = source

    return act


def _set_state(given: StepParameters) -> StepAction:
    key, value = given.take("key", str), given.take("val", object)
    return lambda _, state: state.variables.update({key: value})


def _set_custom_attribute(given: StepParameters) -> StepAction:
    name, value = given.take("attribute", str), given.take("value", object)
    return lambda _, state: state.attributes.update({name: value})


def _rule_failure(given: StepParameters) -> StepAction:
    message = given.take("message", str)

    def act(step: PipelineStep, state: RuleState) -> None:
        raise refusal(refusals.FAILURE, message, step.place)

    return act


def _item_failure(given: StepParameters) -> StepAction:
    message = given.take("message", str)

    def act(step: PipelineStep, state: RuleState) -> None:
        def fail(item: SelectionItem) -> SigmaSelection:
            raise refusal(refusals.FAILURE, message, f"{item.place}, {step.place}")

        step.change(state, fail)

    return act


def _drop_item(_: StepParameters) -> StepAction:
    return lambda step, state: step.change(state, lambda item: None)


def _without_effect(*names: str) -> Callable[[StepParameters], StepAction]:
    def read(given: StepParameters) -> StepAction:
        for name in names:
            given.take(name, str | list)
        return lambda step, state: None

    return read


# --- values -------------------------------------------------------------------------------------

ValueChange: TypeAlias = Callable[[SigmaValue, RuleState], Iterable[SigmaValue]]


def _changing(change: ValueChange, *, also_expanded: bool = False) -> StepAction:
    """Returns the action that replaces each value by some others."""

    def act(step: PipelineStep, state: RuleState) -> None:
        def changed(item: SelectionItem) -> SigmaSelection:
            if item.is_expanded and not also_expanded:
                return item
            values: list[tuple[SigmaValue, ...]] = []
            for value in item.values:
                made = tuple(_counted(value, change, state))
                # New values are alternatives of a list, also with `all`, unless they were before.
                values += [made] if len(value) > 1 else ((each,) for each in made)
            return item if values == [*item.values] else replace(item, values=tuple(values))

        step.change(state, changed)

    return act


def _counted(
    values: Iterable[SigmaValue], change: ValueChange, state: RuleState
) -> Iterator[SigmaValue]:
    """Yields the values that a change makes of some. Raises LimitError before they are too many."""
    for value in values:
        for number, new in enumerate(change(value, state)):
            if number or new != value:
                size = 1
                if isinstance(new, Text):
                    size += sum(len(part) for part in new.parts if isinstance(part, bytes))
                state.spelling.use("SPELLED_BYTES_MAX", SPELLED_BYTES_MAX, size)
            yield new


def _replace_string(given: StepParameters) -> StepAction:
    written, replacement = given.take("regex", str), given.take("replacement", str)
    skips = given.take("skip_special", bool, False)
    reads_signs = given.take("interpret_special", bool, False)
    try:
        tree = regex_syntax.read(written)
        pattern = re.compile(written)
        re.compile(f"{written}|").sub(replacement, "")  # Reads the replacement: it always matches.
        _ways(tree, 1, f"{given.place}.regex")
    except (InvalidFilterError, re.error, IndexError) as error:
        reason = getattr(error, "reason", error)
        raise refusal(refusals.PATTERN, f"{reason}: {written}", f"{given.place}.regex") from None

    def searched(text: str, state: RuleState) -> str:
        steps = (len(text) + 1) * _ways(tree, len(text), given.place)
        state.spelling.use("REPLACING_STEPS_MAX", REPLACING_STEPS_MAX, steps)
        # Before they are made: each reference in the replacement has at most the whole match.
        size, references = 0, replacement.count("\\")
        for found in pattern.finditer(text):
            size += len(replacement) + references * len(found[0])
            if size > SPELLED_BYTES_MAX:
                raise LimitError("SPELLED_BYTES_MAX", SPELLED_BYTES_MAX)
        return text

    def inside(text: WildcardText, state: RuleState) -> WildcardText:
        made: list[bytes | WildcardSign | Placeholder] = []
        for part in text:
            if not isinstance(part, bytes):
                made.append(part)
                continue
            literal = pattern.sub(replacement, searched(_literal(part, given.place), state))
            made += text_of(literal) if reads_signs else (literal.encode(),)
        return join_parts(made)

    def change(value: SigmaValue, state: RuleState) -> Iterator[SigmaValue]:
        if isinstance(value, Scalar) and is_number(value.value):
            value = Text((str(value.value).encode(),), value.cased)
        if not isinstance(value, Text):
            yield value
        elif skips:
            yield value._replace(parts=inside(value.parts, state))
        else:
            searched(plain_of(value.parts), state)
            yield value._replace(parts=_replaced(value.parts, pattern, replacement, given.place))

    return _changing(change)


def _ways(tree: regex_syntax.Tree, length: int, place: str) -> int:
    """Returns how many ways a backtracking search can try an expression at one place, at most."""
    if isinstance(tree, regex_syntax.Sequence):
        ways = 1
        for part in tree.parts:
            ways = min(ways * _ways(part, length, place), REPLACING_STEPS_MAX + 1)
        return ways
    if isinstance(tree, regex_syntax.Alternation):
        return sum(_ways(part, length, place) for part in tree.parts)
    if not isinstance(tree, regex_syntax.Repeat):
        return 1
    if tree.most == 1:
        return _ways(tree.part, length, place) + 1
    if _ways(tree.part, 2, place) > 1:
        raise refusal(refusals.PATTERN, "a repetition of a choice or a repetition", place)
    return (length if tree.most is None else min(length, tree.most)) + 1


def _replaced(
    text: WildcardText, pattern: re.Pattern[str], replacement: str, place: str
) -> WildcardText:
    """Returns a text with the matches in its plain form replaced; the rest keeps its parts."""
    plain, pieces, ends = "", [], []
    for part in text:
        split = _literal(part, place) if isinstance(part, bytes) else [part]
        for each in split:
            piece = each.encode() if isinstance(each, str) else each
            pieces.append((len(plain), piece))
            plain += plain_part(piece)
            ends.append(len(plain))
    made: list[bytes | WildcardSign | Placeholder] = []
    pending, at = "", 0  # Replaced text, which is read with what follows it directly.
    matches = [
        (each.start(), each.end(), each.expand(replacement)) for each in pattern.finditer(plain)
    ]
    for start, stop, new in [*matches, (len(plain), len(plain), "")]:
        for number in range(bisect_right(ends, at), len(pieces)):
            begun, piece = pieces[number]
            if isinstance(piece, Placeholder) and begun < stop and ends[number] > start:
                raise refusal(refusals.PLACEHOLDER, piece.name, place)
            if begun >= start:
                break
            if begun >= at and ends[number] <= start:
                made += [*_signs(pending), piece]
                pending = ""
            else:  # A match begins or ends inside an escaped wildcard.
                pending += plain[max(at, begun) : min(ends[number], start)]
        pending, at = pending + new, stop
    return join_parts((*made, *_signs(pending)))


def _signs(plain: str) -> WildcardText:
    """Returns a replaced text: a backslash escapes a wildcard only."""
    return text_of(re.sub(r"\\(?![*?])", r"\\\\", plain))


def _literal(part: bytes, place: str) -> str:
    try:
        return part.decode()
    except UnicodeDecodeError:
        raise refusal(refusals.VALUE, part, place) from None


def _map_string(given: StepParameters) -> StepAction:
    table = {}
    for written, texts in given.take("mapping", dict).items():
        place = f"{given.place}.mapping.{written}"
        [known] = check_texts([written], place)
        table[known] = check_texts(texts, place)

    def change(value: SigmaValue, _: RuleState) -> Iterator[SigmaValue]:
        mapped = table.get(plain_of(value.parts)) if isinstance(value, Text) else None
        if mapped is None:
            yield value
        else:
            yield from (Text(text_of(each)) for each in mapped)

    return _changing(change)


def _set_value(given: StepParameters) -> StepAction:
    value = given.take("value", object)
    forced = given.take("force_type", str, None)
    if forced == "str" and type(value) in (str, int, float):
        value = str(value)
    elif forced is not None:
        raise refusal(refusals.PARAMETER, forced, f"{given.place}.force_type")
    if not isinstance(value, str | int | float | None):
        raise refusal(refusals.PARAMETER, value, f"{given.place}.value")

    def change(_: SigmaValue, state: RuleState) -> tuple[SigmaValue, ...]:
        return read_value(value, (), state.spelling, f"{given.place}.value")

    return _changing(change, also_expanded=True)


def _case(given: StepParameters) -> StepAction:
    method = given.take("method", str, "lower")
    if method not in ("lower", "upper"):
        raise refusal(refusals.PARAMETER, method, f"{given.place}.method")
    fold = str.lower if method == "lower" else str.upper

    def change(value: SigmaValue, _: RuleState) -> Iterator[SigmaValue]:
        if isinstance(value, Text):
            parts = (
                fold(_literal(each, given.place)).encode() if isinstance(each, bytes) else each
                for each in value.parts
            )
            value = value._replace(parts=tuple(parts))
        yield value

    return _changing(change)


def _placeholders(
    given: StepParameters, values: Callable[[str, RuleState], Iterable[WildcardText]]
) -> StepAction:
    """Returns the action that replaces placeholders; it obeys `include` or `exclude`."""
    include, exclude = given.take("include", list, None), given.take("exclude", list, None)
    if include is not None and exclude is not None:
        raise refusal(refusals.PARAMETER, exclude, f"{given.place}.exclude")

    def is_asked(name: str) -> bool:
        return name in include if include is not None else name not in (exclude or ())

    def change(value: SigmaValue, state: RuleState) -> Iterator[SigmaValue]:
        if not isinstance(value, Text):
            yield value
            return
        choices: list[Iterable[WildcardText]] = []
        for part in value.parts:
            if isinstance(part, Placeholder) and is_asked(part.name):
                choices.append(values(part.name, state))
            else:
                choices.append([(part,)])
        for chosen in product(*choices):
            yield value._replace(parts=join_parts(part for each in chosen for part in each))

    return _changing(change)


def _value_placeholders(given: StepParameters) -> StepAction:
    def values(name: str, state: RuleState) -> list[WildcardText]:
        if name not in state.placeholders:
            raise refusal(refusals.PLACEHOLDER, name, given.place)
        return [text_of(each) for each in state.placeholders[name]]

    return _placeholders(given, values)


def _wildcard_placeholders(given: StepParameters) -> StepAction:
    return _placeholders(given, lambda name, state: [(WildcardSign.ANY,)])


ACTIONS: Final[Mapping[str, Callable[[StepParameters], StepAction]]] = {
    "add_condition": _add_condition,
    "add_field": _without_effect("field"),
    "case": _case,
    "change_logsource": _change_logsource,
    "detection_item_failure": _item_failure,
    "drop_detection_item": _drop_item,
    "map_string": _map_string,
    "remove_field": _without_effect("field"),
    "replace_string": _replace_string,
    "rule_failure": _rule_failure,
    "set_custom_attribute": _set_custom_attribute,
    "set_field": _without_effect("fields"),
    "set_state": _set_state,
    "set_value": _set_value,
    "value_placeholders": _value_placeholders,
    "wildcard_placeholders": _wildcard_placeholders,
}
