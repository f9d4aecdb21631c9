"""`runtime_of`: Node or Chromium with the TypeScript client, in which a test runs its steps."""

import asyncio
import json
import shutil
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, Protocol

import pytest

from tests.browsers import page_of

REPOSITORY: Final = Path(__file__).resolve().parents[2]
SOURCE: Final = REPOSITORY / "clients" / "typescript"
DRIVER: Final = Path(__file__).with_name("node_runtime.mjs")
TOOLS: Final = ("typescript@7.0.2", "ws@8.23.0", "@types/ws@8.18.1")
NODE_MIN: Final = 20
BUILD_S_MAX: Final = 300
END_S_MAX: Final = 20

NODE: Final = shutil.which("node")
NPM: Final = shutil.which("npm")

LOAD: Final = """async () => {
  window.contrada = await import("/dist/index.js");
  window.runtime = {};
}"""

RUNTIMES: Final = ("node and ws", "node's own", "chromium")


class Runtime(Protocol):
    """A place that runs JavaScript with the client in `contrada` and its options in `runtime`."""

    async def run(self, code: str, given: Any = None) -> Any:
        """Returns the result of an asynchronous function. Raises AssertionError for its error."""
        ...


def build(folder: Path) -> Path:
    """Compiles the client in a folder; returns that of the package. Skips where there is no npm."""
    if NODE is None or NPM is None:
        pytest.skip("needs Node and npm")
    version = run_tool(folder, NODE, "--version").stdout.strip()
    if int(version.removeprefix("v").partition(".")[0]) < NODE_MIN:
        pytest.skip(f"needs Node {NODE_MIN}, found {version}")
    package = folder / "node_modules" / "contrada"
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("node_modules", "dist"))
    (folder / "package.json").write_text('{"private": true, "type": "module"}', "utf-8")
    options = ("--silent", "--no-audit", "--no-fund", "--no-package-lock", "--no-save")
    installed = npm(folder, "install", *options, *TOOLS)
    if installed.returncode:
        pytest.skip(f"npm could not install {', '.join(TOOLS)}: {installed.stderr[-300:]}")
    # npm removes a folder that package.json does not list.
    shutil.copytree(
        SOURCE, package, ignore=shutil.ignore_patterns("node_modules", "dist"), dirs_exist_ok=True
    )
    compiled = run_tool(folder, folder / "node_modules" / ".bin" / "tsc", "-p", package)
    assert compiled.returncode == 0, compiled.stdout
    return package


def npm(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Runs npm in a folder."""
    return run_tool(folder, NPM or "npm", *arguments)


def run_tool(folder: Path, *command: str | Path) -> "subprocess.CompletedProcess[str]":
    """Runs a program of Node in a folder."""
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=BUILD_S_MAX
    )


class NodeRuntime:
    """A process of Node that reads steps."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def run(self, code: str, given: Any = None) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"code": code, "given": given}).encode() + b"\n")
        answer = json.loads(await self._process.stdout.readline())
        assert "error" not in answer, answer["error"]
        return answer["result"]


class PageRuntime:
    """A page of Chromium."""

    def __init__(self, page: Any) -> None:
        self._page = page

    async def run(self, code: str, given: Any = None) -> Any:
        return await self._page.evaluate(code, given)


@contextmanager
def pages(folder: Path) -> Iterator[str]:
    """Serves the files of a folder; yields the origin of the pages."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    (folder / "index.html").write_text("<!doctype html><link rel=icon href=data:,>", "utf-8")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@asynccontextmanager
async def runtime_of(name: str, package: Path, origin: str) -> AsyncIterator[Runtime]:
    """Yields a runtime with the compiled client; a page is one of the origin."""
    if name == "chromium":
        # The browser reports each lost connection and refused handshake on its console.
        async with page_of(origin, expected="WebSocket|ERR_") as page:
            await page.evaluate(LOAD)
            yield PageRuntime(page)
        return
    own = name == "node's own"
    options = ["--experimental-websocket", "--no-warnings"] if own else []
    ws = [] if own else [str(package.parent / "ws" / "wrapper.mjs")]
    process = await asyncio.create_subprocess_exec(
        *(NODE or "node", *options, str(DRIVER), str(package / "dist" / "index.js"), *ws),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    try:
        yield NodeRuntime(process)
        process.stdin.close()
        # A timer or socket that the client has left behind would keep it alive.
        async with asyncio.timeout(END_S_MAX):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
