"""Something is done when the next of several deadlines has passed."""

import asyncio

from contrada.service.clock import Deadlines, steady_clock_us
from tests.asynchronous import on_loop, until


@on_loop
async def test_the_next_deadline_is_kept_though_the_last_one_raised() -> None:
    """One error would let all questions that are under way wait for ever."""
    due = [steady_clock_us() + each for each in (0, 1_000, 2_000)]
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: told.append(str(context["exception"]))
    )

    def expire() -> None:
        due.pop(0)
        if len(due) == 2:
            raise ValueError("the first")

    deadlines = Deadlines(lambda: due[0] if due else None, expire)
    deadlines.look()
    await until(lambda: not due)
    assert told == ["the first"]


@on_loop
async def test_an_earlier_deadline_goes_before_one_that_is_waited_for() -> None:
    """A short question would end as late as a long one that was asked before it."""
    due = [steady_clock_us() + 3_600_000_000]
    passed: list[int] = []
    deadlines = Deadlines(lambda: min(due, default=None), lambda: passed.append(due.pop()))
    deadlines.look()
    due.append(steady_clock_us())
    deadlines.look()
    await until(lambda: bool(passed))
    assert len(due) == 1
