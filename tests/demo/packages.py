"""`build_packages` and `check_installation`: the wheel and the sdist, and what an installation has.

`python -m tests.demo.packages` builds both into dist/ and installs each in an environment of its
own below build/: the wheel, and another one that is built from the sdist. Dependencies have the
versions and hashes of requirements/core.txt. Build tools are those of this environment, which are
pinned too, so that only dependencies are downloaded.
"""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / "build" / "packages"
BUILT: Final = ROOT / "dist"

PROGRAM: Final = Path(__file__).with_name("installation.py")
"""The program that uses an installation."""


def run(
    *command: str | Path, folder: Path = ROOT, environment: Mapping[str, str] = os.environ
) -> str:
    """Runs a command; returns its output. Raises RuntimeError with it for a failure."""
    # Modules must be those of the installation.
    held = {name: each for name, each in environment.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=folder, env=held, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def build_packages(
    root: Path, to: Path, *targets: str, environment: Mapping[str, str] = os.environ
) -> str:
    """Builds `wheel`, `sdist` or both of a source tree; returns the output of the build."""
    chosen = [option for target in targets for option in ("-t", target)]
    command = (sys.executable, "-m", "hatchling", "build", "-d", str(to), *chosen)
    return run(*command, folder=root, environment=environment)


def runtime_requirements(name: str = "contrada") -> set[str]:
    """Returns the names of the packages that an installation without extras needs."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        for text in importlib.metadata.requires(waiting.pop()) or ():
            each = Requirement(text)
            other = canonicalize_name(each.name)
            if other not in found and (each.marker is None or each.marker.evaluate({"extra": ""})):
                found.add(other)
                waiting.append(other)
    return found


def pinned_lines(names: Iterable[str]) -> str:
    """Returns the pins of some packages, with their hashes. Raises KeyError for one without."""
    text = (ROOT / "requirements" / "core.txt").read_text("utf-8")
    pins = {each.partition("==")[0]: each for each in re.split(r"\n(?=[a-z])", text)}
    return "\n".join(pins[name] for name in sorted(names)) + "\n"


def check_installation(wheel: Path, folder: Path) -> str:
    """Installs a wheel in a new environment and uses it; returns the answer of `contrada doctor`.

    Raises RuntimeError for a dependency that is missing, and for anything that does not work.
    """
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder)
    python = folder / "bin" / "python"
    pins = folder / "pins.txt"
    pins.write_text(pinned_lines(runtime_requirements()), "utf-8")
    pip = (sys.executable, "-m", "pip", "--python", python, "--quiet")
    run(*pip, "install", "--no-deps", "--require-hashes", "-r", pins)
    run(*pip, "install", "--no-deps", "--no-index", wheel)
    run(*pip, "check")
    run(python, "-I", PROGRAM, folder=folder)
    answer = run(folder / "bin" / "contrada", "doctor", folder=folder)
    if "kernels: compiled" not in answer:
        raise RuntimeError(answer)
    return answer


def main() -> None:
    """Builds and checks both packages."""
    required = {**os.environ, "CONTRADA_REQUIRE_NATIVE": "1"}
    for each in (FOLDER, BUILT):
        shutil.rmtree(each, ignore_errors=True)
    build_packages(ROOT, BUILT, "sdist", "wheel", environment=required)
    (wheel,), (sdist,) = BUILT.glob("*.whl"), BUILT.glob("*.tar.gz")
    _say(f"{wheel.relative_to(ROOT)}, {sdist.relative_to(ROOT)}")
    _say(check_installation(wheel, FOLDER / "of-wheel"))
    pip = (sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "--no-index")
    tree = FOLDER / "from-sdist"
    run(*pip, "--no-build-isolation", "--wheel-dir", tree, sdist, environment=required)
    (other,) = tree.glob("*.whl")
    _say(f"{other.relative_to(ROOT)}, of the sdist")
    _say(check_installation(other, FOLDER / "of-sdist"))


def _say(text: str) -> None:
    print(text.rstrip(), flush=True)  # noqa: T201 - a command


if __name__ == "__main__":
    main()
