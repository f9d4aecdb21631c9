"""What the command `contrada` begins with, before the package is loaded.

Loading takes some tenths of a second. Ctrl-C in that time ends the command too, without a word. So
this stands beside the package, and imports nothing of it before that is arranged.
"""

import os
import signal
import sys
from types import FrameType
from typing import Final

EXIT_INTERRUPTED: Final = 130


def main() -> None:
    """Run the command. Where a standard stream is closed, nothing stands in its place."""
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
    """From now on Ctrl-C is KeyboardInterrupt, which the command turns into its end."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(EXIT_INTERRUPTED)


def _open_standard_streams() -> None:
    """Make closed streams lead nowhere; else the next file or socket would take their number."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDWR)  # It takes the lowest number that is free: this one.
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8"))
