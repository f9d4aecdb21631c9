"""`Uncollected`: a block without passes of the garbage collector."""

import gc


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
