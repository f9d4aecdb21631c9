"""`SequenceNumbers`: numbers of published rows, by which brokers recognise repetitions.

A partition of a query publishes under a name of its own, and brokers keep the highest number of
each name (`delivery/publishers.py`). A row's number consists of its batch, its place in the
partition, and a checksum of all rows up to it:

    batch modulo 2^16   |  place from 1: 31 bits  |  check: 16 bits

So the highest number shows a repeated batch which rows are published, and that they were the same
rows in the same order. The name has the higher bits of the batch.
"""

import zlib
from typing import Final

from contrada.errors import DeliveryError, LimitError

PARTITION_ROWS_MAX: Final = 2**31 - 1
"""Rows that one partition publishes in one batch. Beyond it: LimitError."""

BATCH_MAX: Final = 2**40
"""The highest number of a batch. Beyond it: it is refused."""

_CHECK_BITS: Final = 16
_PLACE_BITS: Final = 31
_CHECK: Final = 2**_CHECK_BITS - 1
_BATCH_BITS: Final = 16


class SequenceNumbers:
    """The numbers of one partition's rows in one batch, in order."""

    def __init__(self, query: str, batch: int, partition: int) -> None:
        high, low = divmod(batch, 2**_BATCH_BITS)
        self.publisher = f"{query}/{partition}/{high}"
        """The name under which they are published."""
        self._base = low << (_PLACE_BITS + _CHECK_BITS)
        self._end = (low + 1) << (_PLACE_BITS + _CHECK_BITS)
        self._known = self._base
        self._place = self._sum = 0

    def resume_after(self, highest: int) -> bool:
        """Takes the highest number that the broker knows; False if it belongs to a later batch."""
        self._known = max(highest, self._base)
        return highest < self._end

    def next(self, content: bytes) -> int:
        """Returns the number of the next row; 0 if it is known. Cost: a checksum of its bytes.
        Raises DeliveryError if another row was published in its place, LimitError.
        """
        self._place += 1
        if self._place > PARTITION_ROWS_MAX:
            raise LimitError("PARTITION_ROWS_MAX", PARTITION_ROWS_MAX)
        self._sum = zlib.crc32(content, self._sum)
        number = self._base | self._place << _CHECK_BITS | self._sum & _CHECK
        if number >> _CHECK_BITS == self._known >> _CHECK_BITS and number != self._known:
            raise self._mismatch(f"row {self._place} of the batch is another one")
        return number if number > self._known else 0

    def end(self) -> None:
        """Checks the end of the rows. Raises DeliveryError if more rows were published before."""
        if self._place < (self._known - self._base) >> _CHECK_BITS:
            raise self._mismatch(f"the batch has {self._place} rows, which are fewer")

    def _mismatch(self, what: str) -> DeliveryError:
        return DeliveryError(
            f"{self.publisher}: {what} than when it was published before; sort the rows of each "
            "partition, or take another `query`"
        )
