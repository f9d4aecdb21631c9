"""A broker in a process of its own, as a user starts it."""

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.asynchronous import TEST_S_MAX

CONTRADA = (sys.executable, "-c", "from contrada_command import main; main()")
"""The command, with this interpreter."""


@pytest.fixture(scope="session")
def broker_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker that all tests share."""
    store = tmp_path_factory.mktemp("broker") / "contrada.db"
    command = [*CONTRADA, "serve", "--port", "0", "--store", str(store)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=TEST_S_MAX)
        assert process.returncode == 0, errors
        assert "Traceback" not in errors, errors


@pytest.fixture(params=["embedded", "broker"])
def address(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """The address of each kind of service."""
    if request.param == "embedded":
        yield None
    else:
        yield request.getfixturevalue("broker_address")
