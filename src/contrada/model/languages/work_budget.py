"""Work: what a question, or a whole request, may cost.

What takes long counts its steps with `spend`, before it takes them. A step is about a microsecond
of CPython. They are counted and not timed, so that the same question is answered alike everywhere.

    with Work("REQUEST_WORK_MAX", …):           a server carries out a request
        with Work("DECISION_WORK_MAX", …):      a decision within it
            spend(…)                            counts for both

Invariants: what an inner budget cannot pay is that question's own fault, and its answer may be
kept; what an outer one cannot pay goes through the inner question as `Exhausted`, past all caches,
and past all that catches what extensions raise.
"""

from contextvars import ContextVar, Token
from types import TracebackType
from typing import Final, Self

from contrada.errors import LimitError

_UNBOUNDED: Final = 2**48


class Exhausted(BaseException):
    """There is no work left in a budget. It does not leave the `with` of that budget.

    It is no Exception: whoever catches those of an extension must not take it for one.
    """

    def __init__(self, work: "Work") -> None:
        super().__init__(work.limit)
        self.work = work

    @property
    def is_here(self) -> bool:
        """Whether it may become a safe answer here.

        Only where no other budget stands between here and the one that is used up: further in it
        would be taken for an answer.
        """
        return _current.get() is self.work and not self.work.is_strict


class Work:
    """A budget for what is done in its `with`; that raises LimitError where it was too little."""

    __slots__ = ("_outer", "_token", "is_strict", "left", "limit", "maximum")

    _outer: "Work | None"
    _token: "Token[Work | None]"

    def __init__(self, limit: str, maximum: int, *, is_strict: bool = False) -> None:
        """The limit's name and its steps. A strict one takes no safe answers: it always raises."""
        self.limit = limit
        self.maximum = self.left = maximum
        self.is_strict = is_strict

    def __enter__(self) -> Self:
        self._outer = _current.get()
        self._token = _current.set(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _current.reset(self._token)
        # What was begun inside and goes on later, as a callback of a loop does, is not bounded.
        self._outer, self.left = None, _UNBOUNDED
        if isinstance(error, Exhausted) and error.work is self:
            raise LimitError(self.limit, self.maximum) from None

    def spend(self, steps: int) -> None:
        """Counts steps here and in all budgets around. See `spend`."""
        exhausted, work = None, self
        while True:
            work.left -= steps
            if work.left < 0:
                exhausted = work
            if work._outer is None:
                break
            work = work._outer
        if exhausted is not None:  # The outermost: what it ends must not be kept as an answer.
            raise Exhausted(exhausted)

    def steps_left(self) -> int:
        """Returns the steps that this budget and all around it leave."""
        work, left = self, self.left
        while work._outer is not None:
            work = work._outer
            left = min(left, work.left)
        return max(0, left)


class Unbounded:
    """What is done in its `with` is not to end half way, whatever the budgets around."""

    __slots__ = ("_token",)

    def __enter__(self) -> None:
        self._token = _current.set(None)

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)


_current: Final[ContextVar[Work | None]] = ContextVar("work", default=None)

budget: Final = _current.get
"""The innermost budget, or None where nothing is bounded."""


def spend(steps: int) -> None:
    """Counts steps, to be called before they are taken. Free where nothing is bounded.

    Raises Exhausted, which becomes a LimitError at the budget that is used up.
    """
    work = _current.get()
    if work is not None:
        work.spend(steps)
