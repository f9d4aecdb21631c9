"""Networks of broker processes, as users start them, and the kill of one."""

import signal
from contextlib import ExitStack

import pytest

from tests.commands import here
from tests.net.processes import WAIT_S, publish_until, reading, serving


@pytest.mark.slow
def test_brokers_of_a_mesh_are_started_and_one_is_killed() -> None:
    """The network would be cut where one of its brokers dies, though others lead around it."""
    mesh = ["--port", "0", "--general"]
    with ExitStack() as stack:
        _, first = stack.enter_context(serving(*mesh, "--name", "a"))
        middle, second = stack.enter_context(serving(*mesh, "--name", "b", "--neighbour", first))
        other, third = stack.enter_context(serving(*mesh, "--name", "c", "--neighbour", first))
        _, last = stack.enter_context(
            serving(*mesh, "--name", "d", "--neighbour", second, "--neighbour", third)
        )
        assert other.poll() is None
        subscriber = stack.enter_context(reading("a any", last))
        publish_until(subscriber, first, 1)
        middle.send_signal(signal.SIGKILL)
        assert middle.wait(WAIT_S) == -signal.SIGKILL
        publish_until(subscriber, first, 2)


@pytest.mark.quick_first
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--neighbour", "contrada://127.0.0.1:1"], "a broker with neighbours or a parent has a"),
        (["--parent", "contrada://127.0.0.1:1"], "add --name NAME"),
        (["--general"], "a broker of a general network has a name"),
        (["--name", "a", "--neighbour", "tcp://x"], "did you mean contrada://x?"),
        (["--name", "a", "--general", "--trees", "9"], "--trees"),
    ],
)
def test_invalid_networks_are_refused(options: list[str], said: str) -> None:
    """A broker would run alone, and its owner think that it is in a network."""
    result = here("serve", "--port", "0", *options)
    assert result.returncode == 2
    assert said in result.stderr
