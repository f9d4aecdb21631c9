"""Registers `format("contrada")`: Spark looks for a `DefaultSource` in packages of such a name."""

from contrada.spark.connector.source import ContradaSource as DefaultSource

__all__ = ["DefaultSource"]
