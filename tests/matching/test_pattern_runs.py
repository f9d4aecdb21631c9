"""The kernels of patterns, uncompiled; `test_array_runs` compares the compiled ones."""

import subprocess
import sys

import pytest

from contrada.model.native import INTERPRETED_VARIABLE


@pytest.mark.slow
def test_plain_kernels_give_the_same() -> None:
    """Interpreted, patterns over batches would fail, or find others."""
    tests = "tests/patterns/test_array_runs.py"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests]
    ran = subprocess.run(
        command,
        env={INTERPRETED_VARIABLE: "1", "PYTHONPATH": "src:."},
        capture_output=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout.decode()
