"""Pipelines as files: what a description says, and a run of it.

Nothing is imported here: `contrada.integrations.spark.pipeline.pipeline_description` needs neither
PySpark nor Java.
"""
