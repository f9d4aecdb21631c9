"""Saved indexes: the contents of a file, its mapping, and refused files."""

import os
import struct
import zlib
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

import contrada as ct
from contrada.errors import EncodingError
from contrada.matching.index_file import ALIGNMENT, MAGIC
from contrada.matching.kernels.schema import ARRAYS, STORE
from tests import strategies
from tests.matching.engines import COMPILED, arrays_of, loaded_index, new_index


@pytest.mark.quick_first
@pytest.mark.parametrize("compiled", COMPILED)
@given(
    subscriptions=st.lists(strategies.filters() | strategies.filter_sets(), max_size=10),
    more=strategies.filters(),
    notification=strategies.notifications(),
)
def test_a_saved_index_is_the_same(
    compiled: Any, subscriptions: list[Any], more: ct.Filter, notification: ct.Notification
) -> None:
    """A filter, a key or an operator would be lost in the file, or updates be impossible."""
    index: ct.Index[Any] = new_index(compiled)
    keys: list[Any] = [None, 1, "x", b"y", 2.5, ("a", 1), ("b", ("c",)), "t", 8, 9]
    by_key = dict(zip(keys, subscriptions, strict=False))
    for key, subscription in by_key.items():
        index.add(key, subscription)
    index.remove("x")
    by_key.pop("x", None)
    with TemporaryDirectory() as folder:
        index.save(Path(folder) / "index")
        loaded = loaded_index(Path(folder) / "index", compiled)
        other = loaded_index(Path(folder) / "index", compiled)
        loaded.validate()
        other.add("more", more)
        other.remove(1)
        other.validate()
        for each, of in ((loaded, by_key), (other, by_key | {"more": more})):
            expected = {key for key, one in of.items() if one.matches(notification)}
            expected -= {1} if each is other else set()
            found = each.match(notification)
            assert set(found) == expected
            assert len(found) == len(expected)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    """A file that is no index would crash, or be taken for an empty one."""
    index: ct.Index[Any] = new_index(False)
    index.add("k", ct.Filter("a = 1 and b contains 'x'"))
    path = tmp_path / "index"
    index.save(path)
    whole = path.read_bytes()
    for damaged in (b"", b"x" * 100, whole[:40], whole[:-200], whole[:16] + b"\xc1" + whole[17:]):
        path.write_bytes(damaged)
        with pytest.raises(EncodingError):
            ct.Index.load(path)
    with pytest.raises(FileNotFoundError):
        ct.Index.load(tmp_path / "missing")
    index.add(object(), ct.Filter("a = 1"))
    with pytest.raises(EncodingError, match="keys must be"):
        index.save(path)


def test_a_key_that_cannot_be_one_leaves_the_index_as_it_was(tmp_path: Path) -> None:
    """A refused key would leave a slot that is nobody's; a loaded index would know keys twice."""
    index: ct.Index[Any] = new_index(False)
    wrong: Any = [1]
    index.add(1, ct.Filter("a = 1"))
    with pytest.raises(TypeError):
        index.add(wrong, ct.Filter("a = 1"))
    index.validate()
    index.add(2, ct.Filter("a = 1"))
    index.add("s", ct.Filter("a = 1"))
    index.remove(1)
    index.save(tmp_path / "index")
    loaded = loaded_index(tmp_path / "index", False)
    loaded.validate()
    assert 0 not in loaded
    loaded.add(0, ct.Filter("a = 1"))
    loaded.add(4, ct.Filter("a = 1"))
    loaded.validate()
    assert sorted(map(str, loaded.match({"a": 1}))) == ["0", "2", "4", "s"]


@pytest.mark.parametrize("compiled", COMPILED)
def test_statistics_are_saved(compiled: Any, tmp_path: Path) -> None:
    """A loaded index would take its attributes for more frequent than notifications are."""
    index: ct.Index[int] = new_index(compiled)
    index.add(1, ct.Filter("a = 1"))
    for _ in range(300):
        index.match({"a": 1})
    index.save(tmp_path / "index")
    loaded = loaded_index(tmp_path / "index", compiled)
    assert arrays_of(loaded)._segment.notifications == 300
    assert arrays_of(loaded)._segment.arrays.attrs.seen[0] == 300
    assert loaded.statistics().notifications == 300


def saved(path: Path) -> tuple[dict[str, Any], bytes]:
    """The header of a saved index, and the rest behind it."""
    whole = path.read_bytes()
    (length,) = struct.unpack("<Q", whole[12:20])
    return msgspec.msgpack.decode(whole[20 : 20 + length]), whole[20 + length :]


def small(path: Path) -> ct.Index[Any]:
    index: ct.Index[Any] = new_index(False)
    for key in range(8):
        sets: dict[str, Any] = {
            "a": key,
            "b": ct.ops.contains(f"x{key}"),
            "c": ct.ops.gt(key),
            "d": ct.ops.gt(1),
        }
        index.add(key, ct.FilterSet([ct.Filter(sets), ct.Filter(f"e matches /x{key}+/")]))
    index.remove(3)
    index.save(path)
    return index


def test_arrays_lie_where_they_can_be_mapped(tmp_path: Path) -> None:
    """A processor that wants numbers at multiples of their size would stop."""
    index = small(tmp_path / "index")
    header, rest = saved(tmp_path / "index")
    whole = (tmp_path / "index").read_bytes()
    arrays = arrays_of(index)._segment.arrays
    at = len(whole) - len(rest)
    for name in STORE:
        rows = header["arrays"][name]
        size = rows * ARRAYS[name].row_bytes
        at += -at % ALIGNMENT
        assert whole[at : at + size] == arrays.used_rows(name).tobytes(), name
        assert rows >= header["used"][name]
        at += size
    assert at == len(whole)


def test_additions_to_a_loaded_index_stay_in_its_process(tmp_path: Path) -> None:
    """One process would change the matches of all others."""
    small(tmp_path / "index")
    before = (tmp_path / "index").read_bytes()
    loaded = loaded_index(tmp_path / "index", False)
    loaded.add("new", ct.Filter("a = 5"))
    loaded.remove(5)
    assert loaded.match({"a": 5, "b": "x5", "c": 6, "d": 2}) == ["new"]
    assert (tmp_path / "index").read_bytes() == before


def test_another_version_is_refused(tmp_path: Path) -> None:
    """Arrays of another layout would be taken for these."""
    small(tmp_path / "index")
    whole = (tmp_path / "index").read_bytes()
    assert whole[:8] == MAGIC
    (tmp_path / "index").write_bytes(whole[:7] + b"\x05" + whole[8:])
    with pytest.raises(EncodingError, match="version"):
        loaded_index(tmp_path / "index", False)


@pytest.mark.parametrize("seed", range(40))
def test_changed_bytes_are_found(tmp_path: Path, seed: int) -> None:
    """Kernels would read behind the end of an array, or subscribers miss notifications."""
    path = tmp_path / "index"
    small(path)
    whole = bytearray(path.read_bytes())
    random = Random(seed)
    for at in random.sample(range(len(whole)), random.randint(1, 64)):
        whole[at] ^= random.randint(1, 255)
    path.write_bytes(whole)
    with pytest.raises(EncodingError, match=r"damaged|version"):
        loaded_index(path, False)


def test_a_saved_index_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a crash of the machine a saved base of Spark would have an empty index for ever."""
    path, sizes = tmp_path / "i", list[int]()

    def sync(number: int) -> None:
        assert not path.exists()
        sizes.append(os.fstat(number).st_size)

    monkeypatch.setattr(os, "fsync", sync)
    index: ct.Index[int] = ct.Index()
    index.add(1, ct.Filter("a = 1"))
    index.save(path)
    assert sizes == [path.stat().st_size]


def test_a_failed_save_keeps_the_old_file(tmp_path: Path) -> None:
    """An index that was saved would be lost when the next one cannot be."""
    index = small(tmp_path / "index")
    before = (tmp_path / "index").read_bytes()
    index.add(object(), ct.Filter("a = 1"))
    with pytest.raises(EncodingError):
        index.save(tmp_path / "index")
    assert (tmp_path / "index").read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["index"]


def test_a_full_disk_keeps_no_part_of_an_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The part would take the room that is missing."""

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    index = small(tmp_path / "index")
    before = (tmp_path / "index").read_bytes()
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        index.save(tmp_path / "index")
    assert (tmp_path / "index").read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["index"]


@pytest.mark.parametrize(
    "key",
    [frozenset([1]), 2**65, ct.Filter({}), ("a", object())],
    ids=lambda key: type(key).__name__,
)
def test_a_key_that_no_file_can_hold_is_refused(tmp_path: Path, key: Any) -> None:
    """A key would be restored as another one, or end the process."""
    index: ct.Index[Any] = new_index(False)
    index.add(key, ct.Filter("a = 1"))
    with pytest.raises(EncodingError, match="keys must be"):
        index.save(tmp_path / "index")


def header_parts(of: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The positions of the parts of a header, the outermost first; of lists the first and the
    last.
    """
    found = [path]
    steps = of if isinstance(of, dict) else sorted({0, len(of) - 1}) if isinstance(of, list) else ()
    for step in steps if of else ():
        found += header_parts(of[step], (*path, step))
    return found


def changed(of: Any, path: tuple[Any, ...], to: Any) -> Any:
    """The same with another value at a place."""
    if not path:
        return to
    copy = dict(of) if isinstance(of, dict) else list(of)
    copy[path[0]] = changed(of[path[0]], path[1:], to)
    return copy


ODD: list[Any] = [-1, 2**62, b"\xc1", [], [[1, 2, 3]]]


@pytest.mark.quick_first
@pytest.mark.parametrize("odd", ODD, ids=str)
def test_a_damaged_header_is_refused(tmp_path: Path, odd: Any) -> None:
    """A damaged file would end the process by an unrelated error."""
    path = tmp_path / "index"
    small(path)
    header, rest = saved(path)
    for place in header_parts(header):
        packed = msgspec.msgpack.encode(changed(header, place, odd))
        behind = struct.pack("<Q", len(packed)) + packed + rest
        path.write_bytes(MAGIC + struct.pack("<I", zlib.crc32(behind)) + behind)
        try:
            loaded_index(path, False)
        except EncodingError:
            continue
        except Exception as error:
            raise AssertionError(place) from error
