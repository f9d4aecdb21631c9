"""Type extensions: bit sets, unification, filters as values. Source: CU-CS-946-03."""

from typing import Final

from contrada.model.extensions.bit_sets import SetType
from contrada.model.extensions.extended_type import (
    ExtendedOperator,
    ExtendedType,
    load,
    load_entry_points,
    loaded,
)
from contrada.model.extensions.filter_values import FilterType
from contrada.model.extensions.terms import UnifyType

BUILT_IN: Final = (SetType(), UnifyType(), FilterType())
"""The types of every process, in the order of their operators' indices."""

for _extended_type in BUILT_IN:
    _extended_type.define()

__all__ = [
    "BUILT_IN",
    "ExtendedOperator",
    "ExtendedType",
    "FilterType",
    "SetType",
    "UnifyType",
    "load",
    "load_entry_points",
    "loaded",
]
