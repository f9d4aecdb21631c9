"""What a notification with several values is, when one looks at each of them alone."""

import itertools
from collections.abc import Iterator

from contrada.model import Notification


def singles(of: Notification) -> Iterator[Notification]:
    """The same with one value of each attribute, in each combination."""
    several = {name: it if isinstance(it, tuple) else (it,) for name, it in of.items()}
    for values in itertools.product(*several.values()):
        one = dict(zip(several, values, strict=True))
        yield Notification.from_attributes(one, of.body, of.content_type, of.envelope)
