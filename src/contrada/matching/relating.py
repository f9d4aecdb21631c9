"""Which filters of an index cover, are covered by, or meet another product.

Candidates are found on the arrays: a filter that covers another matches each of its points, so
that matching one point finds all of them; the others are found by comparing the hulls of all
programs. The algebra then decides each candidate.

Source: PODC 2000 §3 and §4 (covering relations, relevance of advertisements); CU-CS-948-03 §7.
"""

from typing import Any

import numpy as np

from contrada.matching.compiling import high_key, low_key
from contrada.matching.generation import Generation
from contrada.model import Product, ValueSet
from contrada.model.algebra.valueset import EVERYTHING
from contrada.model.domains import line
from contrada.model.domains.values import TEXT

ANY_DOMAIN = 0


def touching(generation: Generation, product: Product, *, inside: bool) -> list[int]:
    """The filters that may meet a product, or may lie inside it. Cost: a look at every filter."""
    attrs = generation.compiler.attrs
    rows: list[int] = []
    closed = not product.default.meets(_PRESENT)
    for name, value_set in product.sets.items():
        if inside and value_set.text is not None and value_set.canonical().line == EVERYTHING.line:
            continue  # it may be anything, although its form does not show it
        attr = attrs.get(name)
        if attr is not None:
            rows += (attr, *_hull(value_set, generation))
        elif inside:
            return []
    box: Any = np.array(rows or [0], dtype=np.int64)[: len(rows)]
    return list(generation.arrays.touching(box, closed, inside))


_PRESENT = ValueSet(((1,),))


def _hull(value_set: ValueSet, generation: Generation) -> tuple[int, int, int]:
    """(domain, lowest key, highest key) of a set of one domain, else any domain.

    Of texts only a single one has a hull: the reference to it.
    """
    cuts = value_set.line
    if value_set.text is None and len(cuts) >= 2 and not len(cuts) & 1:
        tag, end = cuts[0][0], cuts[-1]
        if 0 < tag < TEXT and (end[0] == tag or end == (tag + 1,)):
            return tag, low_key(cuts[0])[0], high_key(tag, end)[0]
        first = line.first_key(cuts[0])
        if tag == TEXT and end == line.cut_after(first) and isinstance(first[1], bytes):
            ref = generation.compiler.known_text(first[1])
            return tag, ref, ref
    return ANY_DOMAIN, 0, 0
