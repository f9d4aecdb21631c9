"""Which engine holds the tables of routers under test.

Whether kernels are loaded in a process depends on the tests before; routers whose tables hold a few
filters take half as long again with them. Quick tests hold such tables as a young process does, all
others as they come.
"""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from contrada.matching.kernels import jit


def in_quick_tests() -> Iterator[None]:
    """Until the next call indexes do not go over to arrays by themselves, in quick tests.

    For a fixture of modules: one of a folder lasts as long as the process, and reaches all tests.
    """
    with pytest.MonkeyPatch.context() as patch:
        if settings.get_current_profile_name() == "quick":
            patch.setattr(jit, "is_loaded", lambda: False)
        yield
