"""`terminal_keys`: the keys that a person presses at the terminal, one at a time."""

import asyncio
import os
import re
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

CLOSED: Final = ""
"""The key of a terminal that was closed."""

_BYTES_MAX: Final = 1024
_SEQUENCE: Final = re.compile(r"\x1b[\[O][0-?]*[ -/]*[@-~]")
"""The characters of one key, such as an arrow: those that ECMA-48 calls a control sequence."""


@contextmanager
def terminal_keys(on_key: Callable[[str], None]) -> Iterator[None]:
    """Calls a function for each key, without waiting for Enter, in the running event loop.

    The key is its character. Keys that send several, such as arrows, are left out. Ctrl-C remains a
    signal. Standard input has to be a terminal; it is as before afterwards.
    """
    loop = asyncio.get_running_loop()
    number = sys.stdin.fileno()

    def read() -> None:
        try:
            pressed = os.read(number, _BYTES_MAX).decode(errors="replace")
        except OSError:  # Its other side is gone.
            pressed = ""
        if not pressed:
            loop.remove_reader(number)
            on_key(CLOSED)
        for each in _SEQUENCE.sub("", pressed):
            on_key(each)

    before = termios.tcgetattr(number)
    tty.setcbreak(number)
    loop.add_reader(number, read)
    try:
        yield
    finally:
        loop.remove_reader(number)
        termios.tcsetattr(number, termios.TCSADRAIN, before)
