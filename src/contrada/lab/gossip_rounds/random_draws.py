"""`draws`: random numbers that depend only on their purpose.

A draw is a hash of a key and a counter, so arrays, compiled loops, processes and Spark draw the
same numbers in any order. The hash is that of SplitMix64, which generates this sequence from a
seed.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

GAMMA: Final = 0x9E3779B97F4A7C15
MIX_1: Final = 0xBF58476D1CE4E5B9
MIX_2: Final = 0x94D049BB133111EB
WORD: Final = 2**64

_CHUNK: Final = 2**15
"""Draws made at once, so that they stay near the processor."""

Words = NDArray[np.uint64]


def key_of(*numbers: int) -> int:
    """Returns the key of these numbers; other numbers, or another order, give another key."""
    key = 0
    for number in numbers:
        key = mixed((key ^ number % WORD) + GAMMA)
    return key


def mixed(word: int) -> int:
    """The hash of one word, as `draws` has it of many."""
    word %= WORD
    word = (word ^ word >> 30) * MIX_1 % WORD
    word = (word ^ word >> 27) * MIX_2 % WORD
    return word ^ word >> 31


def draws(key: int, counters: Words) -> Words:
    """A word for each counter."""
    words = counters * np.uint64(GAMMA) + np.uint64((key + GAMMA) % WORD)
    words ^= words >> np.uint64(30)
    words *= np.uint64(MIX_1)
    words ^= words >> np.uint64(27)
    words *= np.uint64(MIX_2)
    words ^= words >> np.uint64(31)
    return words


def below(words: Words, bounds: Words) -> Words:
    """Words as whole numbers below bounds of up to 2^32; none is likelier by more than 2^-32."""
    return (words >> np.uint64(32)) * bounds >> np.uint64(32)


def threshold(share: float) -> int:
    """Returns the bound of words that are below it with this chance, from 0 to below 1."""
    return int(share * WORD)


def chosen(key: int, count: int, share: float) -> NDArray[np.bool_]:
    """Returns a mask of random members, each with the same chance, independently."""
    if share >= 1:
        return np.ones(count, np.bool_)
    result = np.empty(count, np.bool_)
    bound = np.uint64(threshold(share))
    for start in range(0, count, _CHUNK):
        stop = min(count, start + _CHUNK)
        result[start:stop] = draws(key, np.arange(start, stop, dtype=np.uint64)) < bound
    return result
