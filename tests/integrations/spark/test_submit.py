"""`spark-submit --py-files` with the wheel, where workers have only its dependencies."""

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from contrada.errors import MissingRequirementError
from contrada.integrations.spark.spark_session import check_requirements
from tests.demo.packages import ROOT, build_packages
from tests.integrations.spark import submitted


def submit(python: Path, packages: str, archive: Path) -> dict[str, Any]:
    """Returns what the program prints. An editable installation in the packages has no effect."""
    script = Path(sys.executable).with_name("spark-submit")
    command = [str(script), "--master", "local[2]", "--conf", "spark.ui.enabled=false"]
    environment = {**os.environ, "PYTHONPATH": packages, "PYSPARK_PYTHON": str(python)}
    done = subprocess.run(
        [*command, "--py-files", str(archive), submitted.__file__],
        env=environment,
        cwd=archive.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_wheel_as_a_zip(tmp_path: Path) -> None:
    """Workers would have no package, or matching fail in a zip; a `.whl` fail without a reason."""
    try:
        check_requirements()
    except MissingRequirementError as missing:
        pytest.skip(str(missing))
    build_packages(ROOT, tmp_path, "wheel")
    (wheel,) = tmp_path.glob("*.whl")
    venv.create(tmp_path / "env", symlinks=True)
    python = tmp_path / "env" / "bin" / "python"
    packages = str(Path(pytest.__file__).parents[1])
    archive = Path(shutil.copy(wheel, tmp_path / "contrada.zip"))
    expected = [[n, f"{n}"] for n in range(0, 40, 2)]
    found = submit(python, packages, archive)
    assert "contrada.zip" in found["driver"]
    assert (found["predicates"], found["index"], found["packed"]) == (expected, expected, 40)
    found = submit(python, packages, wheel)  # Spark gives workers no `.whl`.
    assert found["predicates"] == expected
    assert "cannot import contrada (No module named 'contrada'): install" in found["index"]
