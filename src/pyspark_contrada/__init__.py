"""Registers `format("contrada")`: Spark looks for a `DefaultSource` in packages of such a name."""

from contrada.integrations.spark.connector.data_source import ContradaSource as DefaultSource

__all__ = ["DefaultSource"]
