"""The operators of filters as functions: `ct.ops.between(10, 20)` is a set of values.

    ct.Filter({"price": ct.ops.between(10, 20), "symbol": ct.ops.prefix("D")})

Sets combine by `|`, `&`, `-` and `~`. See `contrada.model.algebra.sets` for the complements.
"""

from contrada.model.algebra.sets import (
    absent,
    any_but,
    between,
    cidr,
    contains,
    eq,
    exists,
    ge,
    gt,
    in_,
    le,
    lt,
    matches,
    ne,
    none_of,
    not_in,
    prefix,
    suffix,
    wildcard,
)

__all__ = ["absent", "any_but", "between", "cidr", "contains", "eq", "exists", "ge", "gt", "in_"]
__all__ += ["le", "lt", "matches", "ne", "none_of", "not_in", "prefix", "suffix", "wildcard"]
