"""Notifications that came together, and are passed on as the bytes they are.

A kernel has looked at them by one call; a notification is made of one when somebody looks.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Final, final, overload

from contrada.matching.kernels import jit
from contrada.model import Notification
from contrada.model.encoding import notification_from_msgpack

BUNDLE_MIN: Final = 4
"""Notifications of a bundle, at least: what a call costs is more than looking at fewer."""

_PADDING: Final = bytes(16)


@final
class Bundle(Sequence[Notification]):
    """Several notifications as their encodings.

    Each is stamped, best effort, of the default priority and without an end, as most are; else
    there is no bundle. It has no subclasses, so `type(x) is Bundle` asks whether something is one,
    as is done for each publication: of an abstract class `isinstance` takes five times as long.
    """

    __slots__ = ("_joined", "_parts", "_starts", "encodings")

    def __init__(self, encodings: Sequence[bytes], joined: Any, starts: Any, parts: Any) -> None:
        self.encodings = encodings
        self._joined, self._starts, self._parts = joined, starts, parts

    @classmethod
    def of(cls, encodings: list[bytes]) -> "Bundle | None":
        """A bundle of these; None where one of them is not as most are, or no kernel is there."""
        if len(encodings) < BUNDLE_MIN or not jit.loaded():
            return None
        import numpy as np  # What kernels need is loaded with them.

        from contrada.matching.kernels import passing

        joined = np.frombuffer(b"".join((*encodings, _PADDING)), dtype=np.uint8)
        count = len(encodings)
        starts = np.fromiter(accumulate(map(len, encodings), initial=0), np.int64, count + 1)
        parts = np.zeros((count, passing.PARTS), dtype=np.int64)
        if not passing.are_plain(joined.ctypes.data, starts, parts.reshape(-1)):
            return None
        return cls(encodings, joined, starts, parts)

    def __len__(self) -> int:
        return len(self.encodings)

    @overload
    def __getitem__(self, at: int) -> Notification: ...

    @overload
    def __getitem__(self, at: slice) -> "Bundle": ...

    def __getitem__(self, at: int | slice) -> "Notification | Bundle":
        if isinstance(at, int):
            return notification_from_msgpack(self.encodings[at])
        begin, end, step = at.indices(len(self))
        if step != 1:
            raise ValueError("notifications of a bundle are taken in a row")
        if end - begin == len(self):
            return self
        starts = self._starts[begin : end + 1]
        return Bundle(self.encodings[begin:end], self._joined, starts, self._parts[begin:end])

    def __iter__(self) -> Iterator[Notification]:
        return map(notification_from_msgpack, self.encodings)

    @property
    def joined_bytes(self) -> int:
        """What it holds beside the encodings: all of them in a row, also where it is a slice."""
        return len(self._joined)

    def spans(self) -> Any:
        """Their attributes as `batches.Spans`; behind each stands its envelope."""
        from contrada.matching.batches import Spans

        starts = self._starts.copy()
        starts[:-1] = self._parts[:, 0]
        return Spans(self._joined.ctypes.data, starts, self._joined)

    @property
    def times_us(self) -> list[int]:
        """When each was published."""
        return self._parts[:, 1].tolist()  # type: ignore[no-any-return]

    def publishers(self) -> set[str]:
        """Who published them: mostly one. Cost: then one look at all of them together."""
        import numpy as np

        begins, lengths = self._parts[:, 4], self._parts[:, 5]
        length = int(lengths[0])
        if (lengths == length).all():
            names = self._joined[begins[:, None] + np.arange(length)]
            if (names == names[0]).all():
                return {names[0].tobytes().decode()}
        return {publisher for publisher, _ in self.identities()}

    def identities(self) -> Iterator[tuple[str, str]]:
        """The publisher and the id of each."""
        data = self._joined
        for _, _, at, length, publisher_at, publisher_length in self._parts.tolist():
            publisher = data[publisher_at : publisher_at + publisher_length]
            yield publisher.tobytes().decode(), data[at : at + length].tobytes().decode()
