"""The store of texts: each once, found by its bytes, with the number of its uses."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import contrada as ct
from contrada.matching.kernels.schema import LENGTH_MASK, TEXT_SHIFT, USES_BYTES
from tests.matching.engines import COMPILED, module, new_index


@pytest.mark.parametrize("compiled", COMPILED)
@given(texts=st.lists(st.binary(max_size=9) | st.sampled_from([b"", b"\0", b"\0\0"]), max_size=60))
def test_each_text_is_stored_once_and_found(texts: Any, compiled: Any) -> None:
    """Equal filters would be stored again for each key; or a constant would be another text."""
    arrays = module("index_arrays", compiled).Arrays()
    find = module("kernels.text_store", compiled).find_text
    known: dict[bytes, int] = {}
    for text in texts:
        assert find(text, arrays.memory) == known.get(text, -1)
        ref = arrays.put_text(text)
        assert known.setdefault(text, ref) == ref
    for text, ref in known.items():
        begin = ref >> TEXT_SHIFT
        assert bytes(arrays.texts[begin : begin + (ref & LENGTH_MASK)]) == text
        assert find(text, arrays.memory) == ref
    assert arrays.used["text_slots"] == len(known)


@pytest.mark.parametrize("compiled", COMPILED)
@given(steps=st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["x", "yy", "zzz"]))))
def test_texts_of_no_filter_are_unused(steps: Any, compiled: Any) -> None:
    """Memory would never be tidied up, or a text be counted twice that is used again."""
    index = new_index(compiled)
    stored: set[str] = set()
    for key, text in steps:
        of = ct.Filter({"name": text})
        if key in index:
            index.add(key, of)
        else:
            index.add_encoded([key], [ct.to_msgpack(of)])
        stored.add(text)
        used = {text for text in stored if index.match({"name": text})}
        unused = index._engine._segment.compiler.bytes_unused
        assert unused == sum(USES_BYTES + len(text) for text in stored - used)


@pytest.mark.parametrize("compiled", COMPILED)
def test_a_text_is_at_the_place_of_its_seeded_hash(compiled: Any) -> None:
    """Texts that share a place in one process would share it in each: a table of them is a list."""
    kernels = module("kernels.scratch", compiled)
    for text in (b"", b"a", b"a longer text"):
        arrays = module("index_arrays", compiled).Arrays()
        arrays.seed[0] = 0x2B6D5A7F9D1C
        ref = arrays.put_text(text)
        place = kernels.finished(kernels.hash_of_text(arrays.seed[0], text))
        assert arrays.text_slots[place & (len(arrays.text_slots) - 1)] == ref
