"""`Notes`: small values of a server that survive a crash, by kind and name.

Each part of a server has its own kinds, and reads them at the start. Without a store nothing is
written or found.
"""

from collections.abc import Iterator
from typing import Any, Final, TypeVar

import msgspec

from contrada.delivery.store import Store
from contrada.model import from_msgpack, to_msgpack

T = TypeVar("T")


class Notes:
    """The notes in a store, as values of messages and of the model."""

    def __init__(self, store: Store | None) -> None:
        self._store = store

    def put(self, kind: str, name: str, value: object) -> None:
        """Writes a note; None removes it."""
        if self._store is not None:
            self._store.note(f"{kind}/{name}", None if value is None else encoder.encode(value))

    def of(self, kind: str, expected: type[T]) -> Iterator[tuple[str, T]]:
        """Yields the names and values of a kind. Cost: all notes."""
        decoder = msgspec.msgpack.Decoder(expected, dec_hook=unpack)
        for note, value in dict(self._store.notes()).items() if self._store is not None else ():
            found, _, name = note.partition("/")
            if found == kind:
                yield name, decoder.decode(value)


def unpack(expected: type, data: Any) -> Any:
    """Decodes a value of the model."""
    thing = from_msgpack(data)
    if not isinstance(thing, expected):
        raise TypeError(f"expected {expected.__name__}, found {type(thing).__name__}")
    return thing


encoder: Final = msgspec.msgpack.Encoder(enc_hook=to_msgpack)
