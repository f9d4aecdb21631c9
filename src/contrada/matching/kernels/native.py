"""`NATIVE`: the compiled module if its kernels have the layouts of `schema`, else None."""

from typing import Any, Final

from contrada.matching.kernels.schema import layouts
from contrada.model.native import NATIVE as LOADED
from contrada.model.native import warn_interpreted


def _checked() -> Any:
    if LOADED is None or layouts() == LOADED.LAYOUTS:
        return LOADED
    warn_interpreted("was built from other sources")
    return None


NATIVE: Final = _checked()
