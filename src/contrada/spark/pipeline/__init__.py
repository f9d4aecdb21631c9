"""Pipelines as files: what a description says, and a run of it.

Nothing is imported here: `contrada.spark.pipeline.description` needs neither PySpark nor Java.
"""
