"""Typed events, called obvents: objects of application-defined types, published and subscribed."""

from functools import partial

from contrada.renamed_modules import former_name
from contrada.typed.obvent import (
    CausalOrder,
    Certified,
    Disseminated,
    Expiring,
    FIFOOrder,
    Obvent,
    Prioritized,
    Reliable,
    TotalOrder,
    Unreliable,
    obvent,
    type_name_of,
)
from contrada.typed.obvent_patterns import ObventMatch, ObventPattern
from contrada.typed.publisher_types import Published, published_by
from contrada.typed.qos import Qos, qos_of
from contrada.typed.shapes import Alias
from contrada.typed.structural_types import Structural, Tuple

__all__ = [
    "Alias",
    "CausalOrder",
    "Certified",
    "Disseminated",
    "FIFOOrder",
    "Obvent",
    "ObventMatch",
    "ObventPattern",
    "Prioritized",
    "Published",
    "Qos",
    "Reliable",
    "Structural",
    "Expiring",
    "TotalOrder",
    "Tuple",
    "Unreliable",
    "obvent",
    "published_by",
    "qos_of",
    "type_name_of",
]

__getattr__ = partial(former_name, __name__)
