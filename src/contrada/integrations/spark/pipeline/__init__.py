"""Pipelines: their description in files, their runs and streams."""
