"""`Sequences`: which server gives the order of each sequence.

All publications in a sequence go to one server, its *sequencer*, which publishes them; its streams
keep that order. The first sequencer is the server that the network's configuration names. The role
moves only when the sequencer itself passes it on. It writes that down before it tells anybody. From
then on it gives no order, and the server that it named does, in the next epoch. So there are never
two sequencers, not even in a partitioned network. While the sequencer is away, nothing in its
sequences is published. The news of a new sequencer carries the context of what the earlier ones
have published, which is delivered first. A server that has lost its memory is the first sequencer
no longer: it may have passed sequences on.

Invariant: each epoch of a sequence has one sequencer, named by that of the epoch before.

Source: EPFL 2503 §5.2.2 (total order).
"""

from collections.abc import Iterator

from contrada.delivery.delivery_limits import DeliveryLimits
from contrada.delivery.delivery_messages import Context, Sequenced
from contrada.delivery.notes import Notes
from contrada.errors import LimitError


class Sequences:
    """Where sequences are, as known here. `first` has all that were never passed on."""

    def __init__(self, first: str, notes: Notes, limits: DeliveryLimits = DeliveryLimits()) -> None:
        self.first = first
        self._sequences_max = limits.sequences_max
        self.left_out = 0
        self._notes = notes
        self._moved = dict(notes.of("sequence", tuple[int, str]))

    def sequencer_of(self, sequence: str) -> tuple[int, str]:
        """The epoch and the sequencer of a sequence."""
        return self._moved.get(sequence, (0, self.first))

    def check_room(self, sequence: str) -> None:
        """Raises LimitError where of one more sequence it cannot be known who gives its order."""
        if sequence not in self._moved and len(self._moved) >= self._sequences_max:
            raise LimitError("sequences_max", self._sequences_max, len(self._moved) + 1)

    def move(self, sequence: str, epoch: int, server: str) -> None:
        """A sequence has another sequencer."""
        self._moved[sequence] = epoch, server
        self._notes.put("sequence", sequence, (epoch, server))

    @property
    def have_moved(self) -> bool:
        """Whether any sequence was passed on."""
        return bool(self._moved)

    def learn(self, message: Sequenced) -> bool:
        """Whether it is news where a sequence is, and there is room to know it; then `move`."""
        if message.epoch <= self.sequencer_of(message.sequence)[0]:
            return False
        if message.sequence not in self._moved and len(self._moved) >= self._sequences_max:
            self.left_out += 1
            return False
        return True

    def announcements(self, context: Context) -> Iterator[Sequenced]:
        """All that was passed on, for a new neighbour, with what is known here."""
        for sequence, (epoch, server) in self._moved.items():
            yield Sequenced(sequence, epoch, server, context)
