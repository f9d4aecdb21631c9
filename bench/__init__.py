"""Measurements: one harness, one runner, one module `bench_*.py` per subject."""
