"""Holds that no secret is tracked, and that one would be found."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]


def found_in(files: list[str]) -> str:
    """What is found that is not marked; empty where nothing is."""
    command = [sys.executable, "-m", "detect_secrets.pre_commit_hook", "--no-verify"]
    command += ["--baseline", ".secrets.baseline", *files]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout if done.returncode else ""


@pytest.mark.slow
def test_no_secret_is_tracked() -> None:
    """Who can read the repository could act as somebody else."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("no repository: nothing is tracked")
    there = [each for each in listed.stdout.split("\0") if (REPOSITORY / each).is_file()]
    assert found_in(there) == ""


def test_a_secret_would_be_found(tmp_path: Path) -> None:
    """The check would pass whatever is tracked."""
    file = tmp_path / "settings.py"
    begin = "-----BEGIN RSA PRI" + "VATE KEY-----"
    word = "x7" * 5
    url = f"postgresql://me:{word}@host/db"  # pragma: allowlist secret
    file.write_text(f"key = '{begin}'\nurl = '{url}'\n")
    said = found_in([str(file)])
    assert "Private Key" in said
    assert "Basic Auth Credentials" in said
