"""`patterns_in`: the event patterns and filter policies in templates of CloudFormation and SAM.

    AWS::Events::Rule                              EventPattern
    AWS::SNS::Subscription, events of SAM          FilterPolicy
    Events of AWS::Serverless::Function and so on  Pattern
    FilterCriteria of event sources and pipes      Pattern, as text

A pattern has the name of its resource, with that of its event in SAM.

Source: AWS EventBridge User Guide, rules in templates of AWS CloudFormation and AWS SAM.
"""

from collections.abc import Iterator
from typing import Any, Final

from contrada.integrations.dialects.eventbridge import eventbridge_refusals as refusals
from contrada.integrations.dialects.eventbridge.eventbridge_refusals import refuse
from contrada.integrations.dialects.json_text import check_depth

RESOURCES: Final = "Resources"

_PATTERNS: Final = ("EventPattern", "FilterPolicy")
_AROUND: Final = ("Events", "FilterCriteria")
"""Members below which `Pattern` is an event pattern."""


def patterns_in(template: dict[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Yields the name and the content of each pattern in a template, in its order. Raises
    LimitError.
    """
    resources = template[RESOURCES]
    for name, resource in resources.items() if isinstance(resources, dict) else ():
        if isinstance(resource, dict):
            yield from _below(resource.get("Properties"), str(name), 1, is_inside=False)


def check_known(content: Any, name: str, depth: int = 1) -> None:
    """Raises RefusedRuleError for a function of CloudFormation in a pattern."""
    check_depth(depth)
    for key, inner in content.items() if isinstance(content, dict) else ():
        is_reference = key == "Ref" and len(content) == 1 and isinstance(inner, str)
        if is_reference or str(key).startswith("Fn::"):
            refuse(refusals.FUNCTION, dict(content), name)
        check_known(inner, name, depth + 1)
    for inner in content if isinstance(content, list) else ():
        check_known(inner, name, depth + 1)


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
