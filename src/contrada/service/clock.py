"""The wall clock of services."""

import time


def wall_clock_us() -> int:
    """The clock of this machine, in UTC microseconds since 1970; it may be put back."""
    return time.time_ns() // 1000
