"""The connection states that a program reads."""

from contrada.service import ConnectionState
from contrada.service.connection_states import STATES_WAITING_MAX, ConnectionStates
from tests.asynchronous import on_loop


@on_loop
async def test_states_that_nobody_reads_are_bounded() -> None:
    """A client that tries for days would fill the memory of a program that does not read."""
    states = ConnectionStates()
    followed = states.follow()
    for attempt in range(2 * STATES_WAITING_MAX):
        states.change(ConnectionState("trying", attempt=attempt))
    states.change(ConnectionState("closed"))
    got = [each async for each in followed]
    assert len(got) == STATES_WAITING_MAX
    assert got[-2:] == [
        ConnectionState("trying", attempt=2 * STATES_WAITING_MAX - 1),
        states.current,
    ]
