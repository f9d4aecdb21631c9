"""Predicates in Python, lifted into filters."""

from contrada.typed.lifting.lifted import Lifted, PlanLine, lift

__all__ = ["Lifted", "PlanLine", "lift"]
