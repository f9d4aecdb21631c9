"""`contrada console` serves its page until it is ended."""

import signal
import subprocess
import urllib.request

from tests.asynchronous import TEST_S_MAX
from tests.own_operators import CONTRADA


def test_the_page_is_served_until_ctrl_c() -> None:
    """A user would get no page, or a process that stays."""
    command = [*CONTRADA, "console", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        address = process.stdout.readline().decode().strip()
        with urllib.request.urlopen(address, timeout=TEST_S_MAX) as answer:
            assert b"<title>Contrada console</title>" in answer.read()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=TEST_S_MAX)
    assert (process.returncode, errors) == (130, b"")
