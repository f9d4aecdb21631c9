"""The package and the habits of its repository: links for an index, pinned files, hooks, CI."""

import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    """The build hook, which is beside the package."""
    pytest.importorskip("hatchling")
    spec = importlib.util.spec_from_file_location("hatch_build", REPOSITORY / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_links_of_the_readme_work_on_an_index(hook: ModuleType) -> None:
    """A reader on a package index would follow a relative link into nothing."""
    readme = (REPOSITORY / "README.md").read_text("utf-8")
    assert hook.LINK.search(readme)
    url = "https://example.org/x/contrada"
    for environment in (
        {"CONTRADA_REPOSITORY_URL": f"{url}/"},
        {"GITHUB_SERVER_URL": "https://example.org", "GITHUB_REPOSITORY": "x/contrada"},
    ):
        shown = hook.with_links(readme, hook.repository_url(environment))
        assert f"]({url}/blob/HEAD/docs/tutorial.md)" in shown
        assert not hook.LINK.search(shown)


def test_links_without_an_address_are_text(hook: ModuleType) -> None:
    """A package that is built without an address would have broken links."""
    assert hook.repository_url({}) == ""
    assert hook.with_links("[a](docs/a.md), [b](https://b.example), [c](#c)", "") == (
        "a, [b](https://b.example), [c](#c)"
    )


def pinned(name: str) -> dict[str, str]:
    """The versions of a pinned file, by package."""
    text = (REPOSITORY / "requirements" / f"{name}.txt").read_text("utf-8")
    assert text.count("--hash=sha256:") >= len(re.findall(r"^[\w.-]+==", text, re.MULTILINE))
    return dict(re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.MULTILINE))


def test_the_core_is_a_part_of_all_that_is_pinned() -> None:
    """Tests would pass with one version in the core and fail with another one in CI."""
    core, dev = pinned("core"), pinned("dev")
    assert core.items() | pinned("hooks").items() <= dev.items()
    assert not {"pyspark", "pyqt6-webengine", "numba", "pyarrow"} & core.keys()


def test_hooks_and_workflows_are_valid() -> None:
    """A commit would run no checks, or CI would not start."""
    hooks = yaml.safe_load((REPOSITORY / ".pre-commit-config.yaml").read_text("utf-8"))
    assert [each["repo"] for each in hooks["repos"]] == ["local"], "nothing is downloaded"
    workflow = yaml.safe_load((REPOSITORY / ".github/workflows/ci.yml").read_text("utf-8"))
    commands = [step.get("run") for each in workflow["jobs"].values() for step in each["steps"]]
    assert {"make test", "make wheels", "make wheel GROUP=core"} <= set(commands)
    versions = re.findall(r"Python :: (3\.\d+)\"", (REPOSITORY / "pyproject.toml").read_text())
    assert workflow["jobs"]["python"]["strategy"]["matrix"]["python-version"] == versions


def test_wheels_are_built_for_all_supported_pythons() -> None:
    """Users of one Python would get a build from source, or an interpreted package."""
    text = (REPOSITORY / "pyproject.toml").read_text("utf-8")
    versions = re.findall(r"Python :: 3\.(\d+)\"", text)
    of_wheels = tomllib.loads(text)["tool"]["cibuildwheel"]
    assert of_wheels["build"] == [f"cp3{version}-manylinux_*" for version in versions]
    assert of_wheels["environment"] == {"CONTRADA_REQUIRE_NATIVE": "1"}
    program = of_wheels["test-command"].partition("{project}/")[2].split()[0]
    assert (REPOSITORY / program).is_file()
