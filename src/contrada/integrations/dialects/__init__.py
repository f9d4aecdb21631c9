"""Filters of other systems as filter sets: those of rule engines, brokers and databases.

Each dialect is a package or a module. All share the conditions with `and`, `or` and `not` of
`model.algebra.expression`, and the rules and refusals of `model.rule`. A condition that filters
cannot express exactly stays as a residue that the dialect evaluates, or is refused with the reason.
It is never changed silently.
"""
