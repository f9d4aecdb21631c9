"""The hashes of places, for whoever hangs filters there: by compiled kernels once they are loaded.

The hashes themselves are in `reading`, since notifications are hashed there.
"""

from contrada.matching import jit, reading


def text_hash(text: bytes) -> int:
    """`reading.text_hash` of a whole text."""
    native = jit.loaded()
    if native is not None:
        return native.text_hash(text)  # type: ignore[no-any-return]
    return reading.text_hash(text, 0, len(text))  # type: ignore[no-any-return]


def point_hash(attr: int, domain: int, key: int) -> int:
    """`reading.point_hash`."""
    native = jit.loaded()
    if native is not None:
        return native.point_hash(attr, domain, key)  # type: ignore[no-any-return]
    return reading.point_hash(attr, domain, key)  # type: ignore[no-any-return]
