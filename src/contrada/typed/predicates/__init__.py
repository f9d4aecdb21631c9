"""Predicates in Python, lifted into filters."""

from contrada.typed.predicates.predicate_compiler import Lifted, PlanLine, lift

__all__ = ["Lifted", "PlanLine", "lift"]
