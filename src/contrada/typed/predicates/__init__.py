"""Predicates in Python, compiled into filters."""

from contrada.typed.predicates.predicate_compiler import CompiledPredicate, PlanLine, lift

__all__ = ["CompiledPredicate", "PlanLine", "lift"]
