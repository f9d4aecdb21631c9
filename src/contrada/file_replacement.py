"""`replace_file`: another content for a file, atomically also across a crash of the machine."""

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from glob import escape, iglob
from pathlib import Path
from typing import Final

UNFINISHED_S: Final = 86_400.0
"""Seconds without a change of an unfinished file. Beyond it: the next replacement removes it."""


def replace_file(
    path: Path,
    parts: Iterable[bytes | memoryview],
    mode: int = 0o666,
    prepare: Callable[[int], None] = lambda _: None,
    check: Callable[[], None] = lambda: None,
) -> os.stat_result:
    """Replaces a file, and returns the status of the new one; after an error the old one is there.

    `parts` are its buffers, in order. `mode` is that of the new one, less the umask. `prepare`
    gets its descriptor while it is empty, and `check` is called when it is on the disk. Raises
    OSError, and the errors of both.
    """
    # A unique name: two programs that write one file would make it unreadable.
    beside = path.with_name(f".{path.name}.{os.urandom(4).hex()}.new")
    try:
        with open(beside, "xb", opener=partial(os.open, mode=mode)) as file:
            now_s = os.fstat(file.fileno()).st_mtime  # By the clock of the file system.
            for name in iglob(f".{escape(path.name)}.{'[0-9a-f]' * 8}.new", root_dir=path.parent):
                left = path.with_name(name)  # By a killed program, if it is old.
                with suppress(OSError):
                    if os.lstat(left).st_mtime < now_s - UNFINISHED_S:
                        left.unlink()
            prepare(file.fileno())
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        status = beside.stat()  # Some file systems set the time of a file when it is closed.
        check()
        beside.replace(path)
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
    return status
