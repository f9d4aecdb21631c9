"""`Sequences`: one sequencer at a time, eventually known to all."""

import pytest

from contrada.delivery.delivery_limits import DeliveryLimits
from contrada.delivery.delivery_messages import Sequenced
from contrada.delivery.memory_store import MemoryStore
from contrada.delivery.orders import Sequences
from contrada.delivery.store import Notes
from contrada.errors import LimitError


def test_the_higher_epoch_holds() -> None:
    """Old news would restore a former sequencer."""
    of = Sequences("first", Notes(None))
    assert of.sequencer_of("t") == (0, "first")
    assert not of.moved
    for epoch, server, is_news in (
        (2, "b", True),
        (1, "a", False),
        (2, "c", False),
        (3, "d", True),
    ):
        message = Sequenced("t", epoch, server)
        assert of.learn(message) is is_news
        if is_news:
            of.move(message.sequence, message.epoch, message.server)
    assert of.sequencer_of("t") == (3, "d")
    assert of.sequencer_of("u") == (0, "first")
    assert [*of.announcements(())] == [Sequenced("t", 3, "d")]


def test_it_is_known_after_a_crash() -> None:
    """A former sequencer would order its sequence again."""
    store = MemoryStore()
    Sequences("first", Notes(store)).move("t", 1, "b")
    store.sync()
    store.crash()
    assert Sequences("first", Notes(store)).sequencer_of("t") == (1, "b")


def test_what_is_known_is_bounded() -> None:
    """Another server could fill the memory with sequences."""
    of = Sequences("first", Notes(None), DeliveryLimits(sequences_max=1))
    of.move("t", 1, "b")
    assert not of.learn(Sequenced("u", 1, "b"))
    assert of.left_out == 1
    assert of.learn(Sequenced("t", 2, "c"))
    of.check_room("t")
    with pytest.raises(LimitError, match="sequences_max"):
        of.check_room("u")
