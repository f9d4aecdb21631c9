"""`main`: the entry point of the command `contrada`, which runs before the package is loaded.

Loading takes some tenths of a second, and Ctrl-C during that time must end the command without a
traceback. So this package is separate, and imports nothing of `contrada` before its signal handler
is set.
"""

import os
import signal
import sys
from types import FrameType
from typing import Final

EXIT_INTERRUPTED: Final = 130


def main() -> None:
    """Runs the command. A closed standard stream becomes the null device."""
    is_watched = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # Else: ignored.
    if is_watched:
        signal.signal(signal.SIGINT, _end)
    _open_standard_streams()
    from contrada.cli import main as command

    try:
        command(prog_name="contrada", obj=_end_in_order if is_watched else None)
    finally:
        if is_watched:
            signal.signal(signal.SIGINT, _end)


def _end_in_order() -> None:
    """Makes Ctrl-C raise KeyboardInterrupt, which the command turns into its end."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(EXIT_INTERRUPTED)


def _open_standard_streams() -> None:
    """Opens the null device for closed streams; the next file or socket would take their number."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDWR)  # It takes the lowest number that is free: this one.
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8"))
