"""Obvents: objects of application-defined types as events."""

from contrada.typed.obvent import Obvent, obvent, type_name_of
from contrada.typed.qos import Qos, qos_of
from contrada.typed.semantics import (
    CausalOrder,
    Certified,
    FIFOOrder,
    Prioritary,
    Reliable,
    Timely,
    TotalOrder,
    Unreliable,
)
from contrada.typed.shapes import Alias

__all__ = [
    "Alias",
    "CausalOrder",
    "Certified",
    "FIFOOrder",
    "Obvent",
    "Prioritary",
    "Qos",
    "Reliable",
    "Timely",
    "TotalOrder",
    "Unreliable",
    "obvent",
    "qos_of",
    "type_name_of",
]
