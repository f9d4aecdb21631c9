"""The filter library: conditions on obvents, made of accessors and comparisons."""

from contrada.typed.conditions.accessors import Access, Accessor, Invoke
from contrada.typed.conditions.condition_set import ConditionSet
from contrada.typed.conditions.conditions import (
    AndCondition,
    Compare,
    Condition,
    Contains,
    Equals,
    Greater,
    GreaterEqual,
    IsInstance,
    Less,
    LessEqual,
    NotCondition,
    OrCondition,
    Same,
    XorCondition,
)

__all__ = [
    "Access",
    "Accessor",
    "AndCondition",
    "Compare",
    "Condition",
    "ConditionSet",
    "Contains",
    "Equals",
    "Greater",
    "GreaterEqual",
    "Invoke",
    "IsInstance",
    "Less",
    "LessEqual",
    "NotCondition",
    "OrCondition",
    "Same",
    "XorCondition",
]
