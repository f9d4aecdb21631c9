"""Pipelines: their description in files, their runs and streams.

This module imports nothing: `pipeline_description` needs neither PySpark nor Java.
"""
