"""A PostgreSQL server of the tests' own, on a socket in a temporary folder, from Debian's packages.

Where there is none, what needs one skips and says so. A server refuses to run as root, so it is
another user's then.
"""

import atexit
import os
import signal
import subprocess
from functools import cache
from itertools import count
from pathlib import Path
from shutil import rmtree, which
from tempfile import mkdtemp
from typing import Any, Final
from urllib.parse import quote

import pytest

_USERS: Final[dict[str, Any]] = (
    {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}
)
_SCHEMAS: Final = count(1)


def _binaries() -> Path | None:
    """Where a server's programs are."""
    found = which("postgres")
    folders = [Path(found).resolve().parent] if found else []
    folders += Path("/usr/lib/postgresql").glob("*/bin")
    return next((each for each in folders if (each / "initdb").exists()), None)


BINARIES: Final = _binaries()

needs_postgres: Final = pytest.mark.skipif(
    BINARIES is None, reason="there is no PostgreSQL server here: install postgresql"
)


class Server:
    """A server whose data lasts until `remove`."""

    def __init__(self, primary: "Server | None" = None) -> None:
        """An empty server, or a replica of another one, without which that one commits nothing."""
        assert BINARIES is not None
        self._programs = BINARIES
        self.folder = Path(mkdtemp(prefix="contrada-postgres-"))
        if _USERS:
            subprocess.run(["chown", _USERS["user"], str(self.folder)], check=True)
        data = f"--pgdata={self.folder / 'data'}"
        if primary is None:
            form = "--auth=trust", "--no-locale", "--encoding=UTF8"
            self._run("initdb", data, "--username=tests", "--no-sync", *form)
        else:
            source = f"--host={primary.folder}", "--write-recovery-conf", "--checkpoint=fast"
            self._run("pg_basebackup", data, "--username=tests", "--no-sync", *source)
        self.start()
        if primary is not None:
            primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            primary.execute("SELECT pg_reload_conf()")

    def _run(self, program: str, *options: str) -> None:
        command = [str(self._programs / program), *options]
        subprocess.run(
            command, check=True, capture_output=True, cwd=self.folder, text=True, **_USERS
        )

    def execute(self, query: str) -> None:
        """Executes a statement as the owner of the server."""
        self._run("psql", f"--host={self.folder}", "--username=tests", "postgres", "-c", query)

    def promote(self) -> None:
        """Makes a replica a primary, when its own is gone."""
        self.execute("SELECT pg_promote()")

    def start(self, **others: str) -> None:
        """Returns when it takes connections."""
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.folder),
            "log_min_messages": "log",
            "log_min_error_statement": "panic",
            **others,
        }
        options = [word for each in settings.items() for word in ("-c", "=".join(each))]
        self._process = subprocess.Popen(
            [str(self._programs / "postgres"), "-D", str(self.folder / "data"), *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            text=True,
            **_USERS,
        )
        assert self._process.stderr is not None
        said = []
        for line in self._process.stderr:
            said.append(line)
            if "ready to accept" in line:
                return
        raise AssertionError("".join(said))

    def kill(self) -> None:
        """Ends it at once, with all its processes: what it did not write is lost."""
        self.signal(signal.SIGKILL)
        self._ended()

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to all its processes."""
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()
        for each in (pid, *map(int, children)):
            os.kill(each, number)

    def stop(self) -> None:
        """Ends it as if the machine were shut down quickly."""
        self._process.send_signal(signal.SIGINT)
        self._ended()

    def _ended(self) -> None:
        assert self._process.stderr is not None
        self._process.stderr.read()  # until the last of its processes has ended
        self._process.stderr.close()
        self._process.wait()

    def remove(self) -> None:
        """Ends it, and removes its data."""
        if self._process.returncode is None:
            self.stop()
        rmtree(self.folder)

    def url(self, schema: str = "") -> str:
        """The URL of a store that is not there yet, or of a schema."""
        schema = schema or f"s{next(_SCHEMAS)}"
        return f"postgresql://tests@{quote(str(self.folder), safe='')}/postgres?schema={schema}"


@cache
def shared_server() -> Server:
    """A server for all tests of this process that do not stop it."""
    server = Server()
    atexit.register(server.remove)
    return server
