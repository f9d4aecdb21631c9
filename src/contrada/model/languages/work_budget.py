"""`Work`: a budget of steps for a decision, or for a whole request.

A costly computation counts its steps, of about a microsecond, with `spend` before it makes them, in
its budget and in all outer ones. Steps are not timed, so that the same question has the same answer
everywhere.

Invariants: exceeding an inner budget is that decision's own fault, and its answer may be cached;
exceeding an outer one passes through the inner decision as `Exhausted`, past all caches and past
all handlers for errors of extensions.

`Unbounded` and `Uncollected` are blocks that no budget ends, and no pass of the garbage collector
enters: updates that must be whole.
"""

import gc
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Final, Self

from contrada.errors import LimitError

_UNBOUNDED: Final = 2**48


class Exhausted(BaseException):
    """A budget is exhausted. No Exception: handlers for errors of extensions do not catch it."""

    def __init__(self, work: "Work") -> None:
        super().__init__(work.limit)
        self.work = work

    @property
    def is_here(self) -> bool:
        """Whether it may become a safe answer here.

        Only if no other budget lies between here and the exhausted one: further in it would be
        cached as an answer.
        """
        return _current.get() is self.work and not self.work.is_strict


class Work:
    """A budget for its `with` block, which raises LimitError if the budget was too small."""

    __slots__ = ("_outer", "_token", "is_strict", "left", "limit", "maximum")

    _outer: "Work | None"
    _token: "Token[Work | None]"

    def __init__(self, limit: str, maximum: int, *, is_strict: bool = False) -> None:
        """Sets the limit's name and its steps. A strict budget always raises."""
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
        # A continuation outside the block, such as a callback of a loop, is not bounded.
        self._outer, self.left = None, _UNBOUNDED
        if isinstance(error, Exhausted) and error.work is self:
            raise LimitError(self.limit, self.maximum) from None

    def spend(self, steps: int) -> None:
        """Counts steps here and in all outer budgets. See `spend`."""
        exhausted, work = None, self
        while True:
            work.left -= steps
            if work.left < 0:
                exhausted = work
            if work._outer is None:
                break
            work = work._outer
        if exhausted is not None:  # The outermost: no answer within it may be cached.
            raise Exhausted(exhausted)

    def steps_left(self) -> int:
        """Returns the smallest rest of this budget and all outer ones."""
        work, left = self, self.left
        while work._outer is not None:
            work = work._outer
            left = min(left, work.left)
        return max(0, left)


class Unbounded:
    """A `with` block that must complete, whatever the outer budgets."""

    __slots__ = ("_token",)

    def __enter__(self) -> None:
        self._token = _current.set(None)

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)


class Uncollected:
    """A `with` block in which the garbage collector does not run, in no thread.

    Its passes over many new objects would free nothing; or it would run finalizers that use an
    object which the block has changed in part. Where blocks of several threads overlap, it runs
    again from the end of the first one on.
    """

    __slots__ = ("_was_enabled",)

    def __enter__(self) -> None:
        self._was_enabled = gc.isenabled()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        if self._was_enabled:
            gc.enable()


_current: Final[ContextVar[Work | None]] = ContextVar("work", default=None)

budget: Final = _current.get
"""The innermost budget, or None without a bound."""


def spend(steps: int) -> None:
    """Counts steps before they are made; free without a budget. Raises Exhausted."""
    work = _current.get()
    if work is not None:
        work.spend(steps)
