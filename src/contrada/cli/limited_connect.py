"""`connect` for commands: with the limits of the environment, `CONTRADA_LIMITS_CLIENT_…`."""

import os
from collections.abc import Callable
from typing import ParamSpec

from contrada import connections
from contrada.limits import PREFIX, read_limits
from contrada.service import Service

P = ParamSpec("P")


def _limited(make: Callable[P, Service]) -> Callable[P, Service]:
    """Returns the function with limits of the environment. Raises InputError for wrong ones."""

    def connect(*arguments: P.args, **options: P.kwargs) -> Service:
        if any(name.startswith(PREFIX) for name in os.environ):
            options["limits"] = read_limits({}, os.environ)
        return make(*arguments, **options)

    return connect


connect = _limited(connections.connect)
