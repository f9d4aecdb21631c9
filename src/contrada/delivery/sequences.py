"""`Sequences`: the sequencer of each sequence.

All publications in a sequence are sent to one server, its *sequencer*, which publishes them; its
streams keep that order. Only the sequencer hands the role over: it writes that down, then announces
the one of the next epoch, with the context of its own publications. So there are never two, not
even in a partitioned network. See docs/delivery.md, "Orders".

Invariant: each epoch of a sequence has one sequencer, named by that of the epoch before.

Source: EPFL 2503 §5.2.2 (total order).
"""

from collections.abc import Iterator

from contrada.delivery.delivery_limits import DeliveryLimits
from contrada.delivery.delivery_messages import Context, Sequenced
from contrada.delivery.store import Notes
from contrada.errors import LimitError


class Sequences:
    """The known sequencers. `first` has all sequences that were never handed over."""

    def __init__(self, first: str, notes: Notes, limits: DeliveryLimits = DeliveryLimits()) -> None:
        self.first = first
        self._sequences_max = limits.sequences_max
        self.left_out = 0
        self._notes = notes
        self._moved = dict(notes.of("sequence", tuple[int, str]))

    def sequencer_of(self, sequence: str) -> tuple[int, str]:
        """Returns the epoch and the sequencer of a sequence."""
        return self._moved.get(sequence, (0, self.first))

    def check_room(self, sequence: str) -> None:
        """Raises LimitError without room for one more sequence."""
        if sequence not in self._moved and len(self._moved) >= self._sequences_max:
            raise LimitError("sequences_max", self._sequences_max, len(self._moved) + 1)

    def move(self, sequence: str, epoch: int, server: str) -> None:
        """Sets the sequencer of a sequence."""
        self._moved[sequence] = epoch, server
        self._notes.put("sequence", sequence, (epoch, server))

    @property
    def have_moved(self) -> bool:
        """Whether any sequence was handed over."""
        return bool(self._moved)

    def learn(self, message: Sequenced) -> bool:
        """Whether a sequencer is news, and there is room for it; then call `move`."""
        if message.epoch <= self.sequencer_of(message.sequence)[0]:
            return False
        if message.sequence not in self._moved and len(self._moved) >= self._sequences_max:
            self.left_out += 1
            return False
        return True

    def announcements(self, context: Context) -> Iterator[Sequenced]:
        """Yields all hand-overs, for a new neighbour."""
        for sequence, (epoch, server) in self._moved.items():
            yield Sequenced(sequence, epoch, server, context)
