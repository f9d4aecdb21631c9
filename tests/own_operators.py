"""A module with operators of a user's own, as text, and how commands are run beside it."""

import subprocess
import sys
from pathlib import Path
from typing import Final

CONTRADA: Final = (sys.executable, "-m", "contrada")
"""The command, with this interpreter, which looks for modules where it is started too."""

EXTENSION: Final = "lengths_of_tests:LengthType"

MODULE: Final = """
import contrada as ct

class Longer(ct.ExtendedOperator):
    name = "longer"

    def apply(self, value, constant):
        return len(value) > int(constant)

class LengthType(ct.ExtendedType):
    name = "Length"

    def operators(self):
        return (Longer(),)
"""


def write_module(folder: Path) -> None:
    """Put the module into a folder."""
    (folder / "lengths_of_tests.py").write_text(MODULE, "utf-8")


def write_package(folder: Path, reference: str) -> None:
    """Put what an installer writes for a package that brings an extension into a folder."""
    information = folder / "lengths-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: lengths\nVersion: 1.0\n", "utf-8"
    )
    (information / "entry_points.txt").write_text(
        f"[contrada.extensions]\nLength = {reference}\n", "utf-8"
    )


def contrada(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the command in a folder."""
    command = [*CONTRADA, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
