"""Distributed asynchronous collections of obvents: see docs/typed.md.

Source: EPFL 2503 chapter 4.
"""

from functools import partial

from contrada.renamed_modules import former_name
from contrada.typed.collections.collection import (
    Collection,
    CollectionStatistics,
    Subscriber,
    Supply,
)
from contrada.typed.collections.collection_handles import Consumer, ElementHandle
from contrada.typed.collections.collection_space import Arrival, ElementRule, Quality
from contrada.typed.collections.collection_types import (
    CausalBag,
    CausalSet,
    FIFOBag,
    FIFOSet,
    PersistentBag,
    PersistentSet,
    SortedBag,
    SortedSet,
    StrongBag,
    StrongSet,
    WeakBag,
    WeakSet,
)
from contrada.typed.collections.element_reader import CollectionLimits
from contrada.typed.collections.subject_path import Subject
from contrada.typed.collections.together import Together

__all__ = [
    "Arrival",
    "ElementRule",
    "CausalBag",
    "CausalSet",
    "Collection",
    "CollectionLimits",
    "CollectionStatistics",
    "Consumer",
    "ElementHandle",
    "FIFOBag",
    "FIFOSet",
    "PersistentBag",
    "PersistentSet",
    "Quality",
    "SortedBag",
    "SortedSet",
    "StrongBag",
    "StrongSet",
    "Subject",
    "Subscriber",
    "Supply",
    "Together",
    "WeakBag",
    "WeakSet",
]

__getattr__ = partial(former_name, __name__)
