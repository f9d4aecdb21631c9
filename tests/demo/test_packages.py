"""The wheel and the sdist: `contrada._native` is in the wheel, and its sources are in the sdist."""

import os
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.demo.packages import ROOT, build_packages, pinned_lines, runtime_requirements

pytest.importorskip("hatchling")
pytestmark = pytest.mark.slow

# Half of the time of a build, and the module is not used here.
QUICK = {**os.environ, "CONTRADA_CFLAGS": "-O0"}
# With other options, so that no module of an earlier build is taken.
WITHOUT_COMPILER = {
    **os.environ,
    "CONTRADA_CFLAGS": "-O1",
    "CC": "/bin/false",
    "CONTRADA_REQUIRE_NATIVE": "0",
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, unpacked."""
    folder = tmp_path_factory.mktemp("packages")
    build_packages(ROOT, folder, "sdist")
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as packed:
        packed.extractall(folder, filter="data")
    (found,) = (each for each in folder.iterdir() if each.is_dir())
    return found


def wheel_of(tree: Path, folder: Path, environment: dict[str, str]) -> tuple[str, list[str], str]:
    """The tag of a new wheel, the names of its native modules, and the output of the build."""
    output = build_packages(tree, folder, "wheel", environment=environment)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
    assert "contrada/matching/kernels/match.py" in names, "it also runs interpreted"
    shared = [name.partition(".data/data/share/")[2] for name in names]
    assert {"man/man1/contrada-serve.1", "zsh/site-functions/_contrada"} <= {*shared}
    return wheel.stem.partition("-0.1.0-")[2], [n for n in names if "_native." in n], output


def test_an_sdist_can_be_compiled(tree: Path) -> None:
    """An installation from it would always run interpreted, or have a module of another Python."""
    for each in ("hatch_build.py", "native/source.py", "native/operations.h", "pyproject.toml"):
        assert (tree / each).is_file(), each
    assert not [*tree.rglob("_native.*"), *tree.rglob("*.so")]


def test_a_wheel_has_the_compiled_module_and_its_platform(tree: Path, tmp_path: Path) -> None:
    """Matching would be slow, or a wheel be installed where its module cannot be loaded."""
    tag, modules, _ = wheel_of(tree, tmp_path, {**QUICK, "CONTRADA_REQUIRE_NATIVE": "1"})
    assert len(modules) == 1
    assert modules[0].startswith("contrada/_native.")
    assert not tag.endswith("none-any")
    assert tag.startswith("cp3")


def test_a_wheel_without_a_compiler_is_pure_and_warns(tree: Path, tmp_path: Path) -> None:
    """An installation would fail where no compiler is, or be slow without a word."""
    tag, modules, output = wheel_of(tree, tmp_path, WITHOUT_COMPILER)
    assert tag == "py3-none-any"
    assert modules == []
    assert "contrada._native could not be compiled" in output


def test_a_required_module_that_cannot_be_compiled_ends_the_build(
    tree: Path, tmp_path: Path
) -> None:
    """A pure wheel would be published."""
    required = {**WITHOUT_COMPILER, "CONTRADA_REQUIRE_NATIVE": "1"}
    with pytest.raises(RuntimeError, match="/bin/false"):
        build_packages(tree, tmp_path, "wheel", environment=required)
    assert not list(tmp_path.glob("*.whl"))


def test_all_dependencies_are_pinned_with_hashes() -> None:
    """`make wheel` would install the newest versions, which change from one day to the next."""
    names = runtime_requirements()
    assert {"click", "lark", "lxml", "msgspec", "numpy", "pyyaml", "rich", "tomlkit"} <= names
    pins = pinned_lines(names)
    assert pins.count("==") == len(names)
    assert pins.count("--hash=sha256:") >= len(names)
