"""What encodings are read, and what becomes of operators that are unknown where they are read."""

from unittest import mock

import pytest

from contrada.errors import EncodingError
from contrada.model import Filter, encoding
from contrada.model.algebra.valueset import ValueSet
from contrada.model.encoding import from_json, from_msgpack, to_json, to_msgpack
from contrada.model.languages.atoms import Atom
from contrada.model.languages.language import Literal


@pytest.mark.parametrize("size", [20, 21])
def test_json_is_bounded_in_bytes(size: int) -> None:
    """Text of other alphabets could be several times as large as the limit."""
    text = '"' + "é" * (size // 2 - 1) + "x" * (size % 2) + '"'
    assert len(text) < 20
    with (
        mock.patch.object(encoding, "ENCODING_BYTES_MAX", 20),
        pytest.raises(EncodingError) as caught,
    ):
        from_json(text)
    assert ("ENCODING_BYTES_MAX" in caught.value.reason) == (size > 20)


def test_a_surrogate_in_json_is_an_encoding_error() -> None:
    """A stranger's text would raise what nobody catches."""
    with pytest.raises(EncodingError, match="surrogate"):
        from_json('"\ud800"')


def test_unknown_operators_travel_by_msgpack_only() -> None:
    """Either a broker would change what it only carries, or the docstring would lie."""
    unknown = ValueSet((), Literal(Atom("frobs", b"x"), True))
    carried = Filter.of_sets({"a": unknown})
    assert from_msgpack(to_msgpack(carried)) == carried
    with pytest.raises(EncodingError, match="frobs"):
        from_json(to_json(carried))
