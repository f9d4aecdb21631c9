"""`NativeModule` compiles `contrada._native`; `RepositoryLinks` fills in README and addresses.

A wheel also has manual pages and shell completions below share/, from the options of the commands.

`native/source.py` makes the source of the module of the kernels in Python. Where it cannot be
compiled, the package is built without it, with a warning, and runs interpreted; with
CONTRADA_REQUIRE_NATIVE=1 the build fails instead. CONTRADA_CFLAGS adds options of the compiler.

The links of README.md are relative, so that they work in every checkout and fork. On a package
index they need the repository's address. It is not written here, since forks and mirrors have their
own; the build takes it from its environment: CONTRADA_REPOSITORY_URL, or the variables of GitHub
Actions. Without an address, links to files become plain text. (hatch-fancy-pypi-readme rewrites
links too, but only to an address in pyproject.toml.)
"""

import hashlib
import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK: Final = re.compile(r"\[([^\]]*)\]\((?![a-z]+:|#)([^)\s]+)\)")


class NativeModule(BuildHookInterface[Any]):
    """Puts `contrada._native` into `src/contrada`, also for an editable installation."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Adds the module to a wheel, which is then one of this platform and Python."""
        if self.target_name != "wheel":
            return
        root = Path(self.root)
        if version != "editable":  # `contrada help` prints the pages.
            pages = (root / "docs").glob("*.md")
            build_data["force_include"] |= {str(it): f"contrada/docs/{it.name}" for it in pages}
            share = root / "build" / "share"
            shutil.rmtree(share, ignore_errors=True)
            run_module(root, "contrada.cli.man_pages", str(share), self.metadata.version)
            build_data["shared_data"][str(share)] = "share"
        package, name = root / "src" / "contrada", ""
        try:
            made = compiled_native(root)
            # Replaced at once: other processes may import it just now.
            new = Path(shutil.copy(made, package / "_native.new"))
            name = new.replace(package / made.name).name
        except Exception as error:
            if _is_set("CONTRADA_REQUIRE_NATIVE"):
                raise
            reason = f"contrada._native could not be compiled, and matching will be slow: {error!r}"
            self.app.display_warning(reason)
        for each in package.glob("_native.*"):
            if each.name != name:  # Of another Python, or of older sources.
                each.unlink()
        if not name:
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True


def compiled_native(root: Path, *modules: str) -> Path:
    """Returns the file of the module, compiled below build/ unless the same text was before.

    `modules` are more modules of kernels, for tests. Cost: half a minute of a processor.
    """
    text = native_source(root, *modules)
    options = ["-O3", "-g0", "-fwrapv", *os.environ.get("CONTRADA_CFLAGS", "").split()]
    digest = hashlib.sha256(f"{text} {options} {sys.version}".encode()).hexdigest()[:16]
    folder = root / "build" / "native" / digest
    if not (found := [*folder.glob("_native.*.so"), *folder.glob("_native.*.pyd")]):
        folder.mkdir(parents=True, exist_ok=True)
        source = folder / "_native.pyx"
        source.write_text(text, "utf-8")
        _compile(source, options)
        found = [*folder.glob("_native.*.so"), *folder.glob("_native.*.pyd")]
    return found[0]


def native_source(root: Path, *modules: str) -> str:
    """Returns the source of the module, in Cython."""
    return run_module(root, "native.source", *modules)


def run_module(root: Path, name: str, *arguments: str) -> str:
    """Runs a module of this tree, interpreted; returns its output. Raises RuntimeError."""
    program = [sys.executable, "-m", name, *arguments]
    # pip's isolated builds find Cython by paths that a new process would not have.
    paths = os.pathsep.join((str(root / "src"), str(root), *filter(None, sys.path)))
    environment = {**os.environ, "PYTHONPATH": paths, "CONTRADA_INTERPRETED": "1"}
    done = subprocess.run(
        program, capture_output=True, text=True, check=False, env=environment, cwd=root
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout


def _compile(source: Path, options: list[str]) -> None:
    build: Any = importlib.import_module("Cython.Build")
    tools: Any = importlib.import_module("setuptools")
    extension = tools.Extension(
        "_native", [str(source)], extra_compile_args=options, extra_link_args=options
    )
    folder = source.parent
    modules = build.cythonize([extension], quiet=True, force=True)
    command = tools.Distribution({"name": "_native", "ext_modules": modules}).get_command_obj(
        "build_ext"
    )
    command.build_lib, command.build_temp = str(folder), str(folder / "objects")
    command.ensure_finalized()
    command.run()


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "0") not in ("", "0")


class RepositoryLinks(MetadataHookInterface):
    """Sets `readme` and `urls` of the package."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Fills in the dynamic fields."""
        url = repository_url(os.environ)
        text = (Path(self.root) / "README.md").read_text("utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": with_links(text, url)}
        metadata["urls"] = urls(url) if url else {}


def repository_url(environment: Any) -> str:
    """Returns the address of the repository, or an empty text."""
    if url := environment.get("CONTRADA_REPOSITORY_URL"):
        return str(url).rstrip("/")
    server, name = (environment.get(f"GITHUB_{each}") for each in ("SERVER_URL", "REPOSITORY"))
    return f"{server}/{name}" if server and name else ""


def with_links(text: str, url: str) -> str:
    """Returns a page with absolute links, or with plain text instead of links to files."""
    return LINK.sub(rf"[\1]({url}/blob/HEAD/\2)" if url else r"\1", text)


def urls(url: str) -> dict[str, str]:
    """Returns the addresses of the package's parts."""
    pages = {
        "Documentation": "docs/index.md",
        "Changelog": "CHANGELOG.md",
        "Security": "SECURITY.md",
    }
    return {
        "Repository": url,
        "Issues": f"{url}/issues",
        **{name: f"{url}/blob/HEAD/{path}" for name, path in pages.items()},
    }
