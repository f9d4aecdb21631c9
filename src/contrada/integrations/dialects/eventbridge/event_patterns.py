"""Event patterns of AWS EventBridge to filters.

`$or` joins alternatives if it has the right form (an array of at least two objects without a field
that is called like an operator); else it is the name of a field. Decisions on cases that AWS
documents poorly, or answers by accident of its representation:

- `anything-but` accepts every present value outside, of any type, including null; of several values
  one outside is enough. `exists: true` accepts null; an object or an empty array is no value.
- A field that occurs twice in one conjunction, and a repeated name in one object, are refused. (AWS
  takes the last.)
- Case is ignored by Unicode's simple case folding. (AWS takes upper and lower case of each
  character: there `k` is not the Kelvin sign, and `ß` is also `SS`.)
- An IPv6 address as a plain value accepts all its spellings, as in AWS; an IPv4 address only its
  usual one. (AWS also takes leading zeros, and compares IPv4 with IPv6 digit by digit.)
- Numbers compare exactly, also 64-bit integers that no double represents. (AWS compares these as
  text.) Other numbers that no double represents are refused.

Source: AWS EventBridge User Guide, "Comparison operators for use in event patterns", rules in
templates of AWS CloudFormation and AWS SAM; AWS Event Ruler, README.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

from contrada import errors
from contrada.errors import ContradaError, LimitError, RefusedRuleError
from contrada.integrations.dialects.eventbridge import eventbridge_operators as operators
from contrada.integrations.dialects.eventbridge import eventbridge_refusals as refusals
from contrada.integrations.dialects.eventbridge.array_residue import residue_of
from contrada.integrations.dialects.eventbridge.eventbridge_events import notifications
from contrada.integrations.dialects.eventbridge.eventbridge_refusals import refuse
from contrada.integrations.dialects.json_text import check_depth, decode_rule, json_lines
from contrada.integrations.dialects.yaml_documents import only_document
from contrada.model.algebra.expression import And, Formula, Member, Or
from contrada.model.algebra.filter import FilterSet, filter_set
from contrada.model.domains.values import check_user_name
from contrada.model.rule import RefusedRule, Rule

OR_WORD: Final = "$or"


def read(pattern: str | bytes | dict[str, Any], name: str = "") -> Rule:
    """Returns the rule of a pattern, given as JSON text or as a decoded object.

    Cost: linear, except `$or`: up to `expression.CONJUNCTIONS_MAX` filters. Raises
    RefusedRuleError with one of `eventbridge_refusals` and the field's path, and LimitError.
    """
    content = decode_rule(refusals.DIALECT, pattern)
    if not isinstance(content, dict):
        refuse(refusals.NO_OBJECT, content, "")
    # Every `$or` joins alternatives, or each is a name.
    try:
        condition = _EventPatternReader(relations=True).conjunction(content, "", 1)
    except _NoRelationError as error:
        try:
            condition = _EventPatternReader(relations=False).conjunction(content, "", 1)
        except RefusedRuleError:
            refuse(refusals.OR, *error.args)
    found, residue = filter_set(condition), residue_of(condition)
    if residue is None:
        return Rule(name, found)
    return Rule(name, found, json.dumps(content, ensure_ascii=False, default=repr), residue)


def matches(
    pattern: Rule | str | bytes | dict[str, Any], event: str | bytes | dict[str, Any]
) -> bool:
    """Whether a pattern, or its rule, matches an event. Raises as `read` and as `notifications`."""
    rule = pattern if isinstance(pattern, Rule) else read(pattern)
    names = {name for each in rule.filters for name in each.sets}
    return any(map(rule.matches, notifications(event, names)))


def filters(pattern: str | bytes | dict[str, Any]) -> FilterSet:
    """Returns the filters that equal a pattern. Raises as `read`, and if a residue remains."""
    return read(pattern).exact_filters(refusals.DIALECT)


def read_rules(text: str) -> Iterator[Rule | RefusedRule]:
    """Yields the rules of a file: one pattern; or an array, or lines, of patterns or of named ones;
    or a template of CloudFormation or SAM, in JSON or YAML.

    A named one is an object with `Name` and `EventPattern` (an object, or its JSON as a string), or
    a subscription of SNS with its `FilterPolicy`. The output of `aws events list-rules`, which has
    them under `Rules`, is valid, and of `aws sns get-subscription-attributes`. Other patterns have
    their number from 1 as name, a single one no name.
    """
    if lines := json_lines(text):
        for number, line in enumerate(lines.values(), start=1):
            yield _read_entry(line, str(number), is_text=True)
        return
    try:
        content = _decode_file(text)
        if isinstance(content, dict) and isinstance(content.get(_RESOURCES), dict):
            for name, pattern in _patterns_in(content):
                yield _read_entry(pattern, name, is_text=isinstance(pattern, str), is_template=True)
            return
    except (RefusedRuleError, LimitError) as error:
        yield RefusedRule("", error)
        return
    several = content.get("Rules") if isinstance(content, dict) else content
    if isinstance(several, list):
        for number, each in enumerate(several, start=1):
            yield _read_entry(each, str(number))
    else:
        yield _read_entry(content, "")


def _decode_file(text: str) -> Any:
    if text.lstrip()[:1] in ("{", "[", ""):
        return decode_rule(refusals.DIALECT, text)
    return only_document(refusals.DIALECT, text, refusals.NO_OBJECT, is_template=True)


def _read_entry(
    content: Any, name: str, *, is_text: bool = False, is_template: bool = False
) -> Rule | RefusedRule:
    """Returns the rule of a pattern, or of an object with a pattern and its name."""
    try:
        if is_text:
            content = decode_rule(refusals.DIALECT, content)
        if is_template:
            _check_known(content, name)
            return read(content, name)
        if isinstance(content, dict) and _is_subscription(
            inner := content.get("Attributes", content)
        ):
            name, content = str(inner.get("SubscriptionArn", name)), inner["FilterPolicy"]
        if isinstance(content, dict) and isinstance(content.get("Name"), str):
            name = content["Name"]
            if "EventPattern" not in content:
                raise RefusedRuleError(refusals.DIALECT, refusals.NO_PATTERN)
            content = content["EventPattern"]
        return read(content, name)
    except ContradaError as error:
        return RefusedRule(name, error)


def _is_subscription(content: Any) -> bool:
    """Whether an object is a subscription of SNS; its members could also be fields of a pattern."""
    known = {"SubscriptionArn", "TopicArn", "FilterPolicyScope", "Endpoint", "Protocol"}
    return isinstance(content, dict) and "FilterPolicy" in content and bool(known & content.keys())


class _NoRelationError(Exception):
    """A `$or` does not join alternatives: the content found, and its path."""


class _EventPatternReader:
    """Reads objects. `relations`: whether `$or` joins alternatives, or is a name."""

    def __init__(self, *, relations: bool) -> None:
        self._relations = relations
        self._named: dict[str, None] = {}
        """The fields of the conjunction so far."""

    def conjunction(
        self, content: dict[str, Any], prefix: str, depth: int, *, in_or: bool = False
    ) -> And:
        """Returns the condition of an object; `prefix` is its path, with a dot at the end."""
        check_depth(depth)
        if not content:
            refuse(refusals.EMPTY_OBJECT, content, prefix[:-1])
        parts: list[Formula] = []
        for step, inner in content.items():
            name = f"{prefix}{step}"
            if self._relations and step == OR_WORD:
                parts.append(self._alternatives(inner, prefix, depth + 1))
            elif in_or and step in operators.OPERATOR_NAMES:
                raise _NoRelationError(step, prefix[:-1])
            elif isinstance(inner, dict):
                parts += self.conjunction(inner, f"{name}.", depth + 1, in_or=in_or).parts
            elif isinstance(inner, list):
                try:
                    check_user_name(name)
                except errors.InvalidNameError as error:
                    refuse(refusals.NAME, error.reason, name)
                if name in self._named:
                    refuse(refusals.TWICE, name, name)
                self._named[name] = None
                parts.append(Member(name, operators.accepted_values(inner, name)))
            else:
                refuse(refusals.FIELD, inner, name)
        return And(tuple(parts))

    def _alternatives(self, content: object, prefix: str, depth: int) -> Formula:
        """Returns the union of objects, which may share fields with each other, not with others."""
        if not isinstance(content, list) or len(content) < 2:
            raise _NoRelationError(content, prefix[:-1])
        parts: list[Formula] = []
        around = len(self._named)
        inside: set[str] = set()
        for each in content:
            if not isinstance(each, dict) or not each:
                raise _NoRelationError(each, prefix[:-1])
            parts.append(self.conjunction(each, prefix, depth, in_or=True))
            while len(self._named) > around:
                inside.add(self._named.popitem()[0])
        self._named.update(dict.fromkeys(inside))
        return Or(tuple(parts))


# --- templates -----------------------------------------------------------------------------------

_RESOURCES: Final = "Resources"

_PATTERNS: Final = ("EventPattern", "FilterPolicy")
_AROUND: Final = ("Events", "FilterCriteria")
"""Members below which `Pattern` is an event pattern."""


def _patterns_in(template: dict[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Yields the name and the content of each pattern in a template of CloudFormation or SAM.

        AWS::Events::Rule                              EventPattern
        AWS::SNS::Subscription, events of SAM          FilterPolicy
        Events of AWS::Serverless::Function and so on  Pattern
        FilterCriteria of event sources and pipes      Pattern, as text

    A pattern has the name of its resource, with that of its event in SAM. Raises LimitError.
    """
    resources = template[_RESOURCES]
    for name, resource in resources.items() if isinstance(resources, dict) else ():
        if isinstance(resource, dict):
            yield from _below(resource.get("Properties"), str(name), 1, is_inside=False)


def _check_known(content: Any, name: str, depth: int = 1) -> None:
    """Raises RefusedRuleError for a function of CloudFormation in a pattern."""
    check_depth(depth)
    for key, inner in content.items() if isinstance(content, dict) else ():
        is_reference = key == "Ref" and len(content) == 1 and isinstance(inner, str)
        if is_reference or str(key).startswith("Fn::"):
            refuse(refusals.FUNCTION, dict(content), name)
        _check_known(inner, name, depth + 1)
    for inner in content if isinstance(content, list) else ():
        _check_known(inner, name, depth + 1)


def _below(content: Any, name: str, depth: int, *, is_inside: bool) -> Iterator[tuple[str, Any]]:
    check_depth(depth)
    for inner in content if isinstance(content, list) else ():
        yield from _below(inner, name, depth + 1, is_inside=is_inside)
    for key, inner in content.items() if isinstance(content, dict) else ():
        if key in _PATTERNS or (is_inside and key == "Pattern"):
            yield name, inner
        elif key == "Events" and isinstance(inner, dict):
            for event, of in inner.items():
                yield from _below(of, f"{name}.{event}", depth + 2, is_inside=True)
        else:
            is_around = is_inside or key in _AROUND
            yield from _below(inner, name, depth + 1, is_inside=is_around)
