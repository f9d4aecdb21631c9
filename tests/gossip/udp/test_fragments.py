"""Messages larger than a datagram: whole in any order, and in bounded memory."""

from hypothesis import given
from hypothesis import strategies as st

from contrada.gossip.gossip_limits import GossipLimits
from contrada.gossip.udp import fragments
from contrada.gossip.udp.fragments import PIECE_BYTES, Reassembly, pieces_of


@given(st.integers(0, 6 * PIECE_BYTES), st.randoms(use_true_random=False))
def test_a_message_is_complete_with_its_last_piece(size: int, rng: object) -> None:
    """A message would be doubled, cut, or reordered."""
    content = bytes(each % 251 for each in range(size)) or b"-"
    pieces = pieces_of(content, 7)
    rng.shuffle(pieces)  # type: ignore[attr-defined]
    assembling = Reassembly()
    found = [assembling.take(b"one", "a:1", piece, 0) for piece in pieces]
    assert found == [None] * (len(pieces) - 1) + [content]
    assert (len(assembling), assembling.bytes_) == (0, 0)


@given(st.lists(st.tuples(st.sampled_from([b"a", b"b"]), st.binary(max_size=40)), max_size=60))
def test_any_bytes_are_harmless(pieces: list[tuple[bytes, bytes]]) -> None:
    """A participant that is broken would break others."""
    assembling = Reassembly()
    for sender, piece in pieces:
        assembling.take(sender, "a:1", piece, 0)
    assert len(assembling) <= 2 * GossipLimits().incomplete_of_sender_max


def test_malformed_pieces_are_refused() -> None:
    """Pieces would overlap, or be of a message without end."""
    head = fragments._HEAD
    full = bytes(PIECE_BYTES)
    assembling = Reassembly()
    bad = [
        head.pack(1, 0, 0) + b"x",
        head.pack(1, 2, 2) + full,
        head.pack(1, 0, 2) + b"short",
        head.pack(1, 1, 2),
        head.pack(1, 0, 1) + full + b"x",
        head.pack(1, 0, fragments.PIECES_MAX + 1) + full,
        b"",
    ]
    for piece in bad:
        assert assembling.take(b"one", "a:1", piece, 0) is None
    assert assembling.refused[fragments.MALFORMED] == len(bad)
    assembling.take(b"one", "a:1", head.pack(1, 0, 3) + full, 0)
    assembling.take(b"one", "a:1", head.pack(1, 0, 3) + full, 0)  # It is there.
    assembling.take(b"one", "a:1", head.pack(1, 1, 4) + full, 0)  # Of how many?
    assert assembling.refused[fragments.MALFORMED] == len(bad) + 2


def test_a_flood_of_pieces_is_bounded() -> None:
    """A sender of first pieces only would fill the memory, or silence others."""
    assembling = Reassembly(GossipLimits(incomplete_bytes_max=20 * PIECE_BYTES))
    first = [pieces_of(bytes(3 * PIECE_BYTES), number)[0] for number in range(100)]
    kept = pieces_of(b"k" * 2 * PIECE_BYTES, 1)
    assembling.take(b"quiet", "b:1", kept[0], 0)
    for piece in first:
        assembling.take(b"loud", "a:1", piece, 0)
    assert len(assembling) == GossipLimits().incomplete_of_sender_max + 1
    assert assembling.take(b"quiet", "b:1", kept[1], 0) == b"k" * 2 * PIECE_BYTES
    for sender in range(50):
        assembling.take(bytes([sender]), "a:1", first[0], 0)
    assert assembling.bytes_ <= 20 * PIECE_BYTES
    assembling.forget(GossipLimits().incomplete_wait_us + 1)
    assert (len(assembling), assembling.bytes_) == (0, 0)
    assert assembling.refused[fragments.INCOMPLETE] == 100 + 50
