"""The memory as compiled kernels have it, and the translation to Cython."""

import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import hatch_build
from contrada.matching.index_arrays import Arrays
from contrada.matching.kernels.schema import ARRAYS
from contrada.model.native import NATIVE
from tests.matching.engines import ROOT, compiled_kernels, needs_native

pytestmark = needs_native

ROW = 3
NUMBERS = [
    (name, field)
    for name, layout in ARRAYS.items()
    for field in (layout.fields or ("",))
    if name != "counters"
]


def numbers_of(arrays: Arrays, name: str, field: str) -> Any:
    """The numbers of a field, by row."""
    return getattr(arrays.of[name], field) if field else arrays.of[name].numbers


def filled() -> Arrays:
    """Arrays of which each number of a row is another one."""
    arrays = Arrays()
    for name in ARRAYS:
        arrays.reserve(name, ROW + 2)
    for value, (name, field) in enumerate(NUMBERS):
        is_byte = ARRAYS[name].code == "B"
        numbers_of(arrays, name, field)[ROW] = value % 251 if is_byte else -1_000 - value
    return arrays


def test_the_module_is_of_these_sources() -> None:
    """A change of a kernel would have no effect, or be tested only where it is interpreted."""
    assert NATIVE is not None
    text = hatch_build.native_source(ROOT)
    assert text.rstrip().endswith(f"SOURCE = {NATIVE.SOURCE!r}"), "run make, which compiles it"


def test_the_source_is_made_where_only_paths_lead_to_cython() -> None:
    """`pip install .` would build no compiled module: its isolated build extends `sys.path`."""
    code = "import sys; sys.path[:] = eval(sys.argv[1]); import hatch_build, pathlib\n"
    code += "print(len(hatch_build.native_source(pathlib.Path(sys.argv[2]))))"
    paths = [str(ROOT), *filter(None, sys.path)]
    # The interpreter below the virtual environment, without the packages of this one.
    program = [getattr(sys, "_base_executable", sys.executable), "-I", "-c", code]
    done = subprocess.run(
        [*program, repr(paths), str(ROOT)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100_000


@pytest.mark.slow
def test_a_kernel_reads_pythons_value_of_every_field() -> None:
    """A kernel would read a field of another name, of another array, or of another width."""
    kernels = memory_kernels()
    arrays, found = filled(), memoryview(bytearray(8 * len(NUMBERS))).cast("q")
    kernels.read_all(ROW, found, arrays.memory)
    for value, (name, field) in enumerate(NUMBERS):
        assert found[value] == numbers_of(arrays, name, field)[ROW], (name, field)
    assert len(set(found)) > len(NUMBERS) - 10, "each number is another one"


@pytest.mark.slow
def test_python_reads_a_kernels_value_of_every_field() -> None:
    """A kernel would write a field beside the one that it means."""
    kernels = memory_kernels()
    arrays = filled()
    for name, field in NUMBERS:
        numbers_of(arrays, name, field)[ROW] = 0
    kernels.write_all(ROW, arrays.memory)
    for value, (name, field) in enumerate(NUMBERS):
        numbers = numbers_of(arrays, name, field)
        expected = value % 256 if ARRAYS[name].code == "B" else value - 70
        assert numbers[ROW] == expected, (name, field)
        assert (numbers[ROW - 1], numbers[ROW + 1]) == (0, 0), "its neighbours are as they were"


@pytest.mark.slow
def test_a_kernel_knows_how_long_an_array_is() -> None:
    """A kernel would look up a hash in half of a table, or behind its end."""
    kernels = memory_kernels()
    arrays, found = Arrays(), memoryview(bytearray(8 * len(ARRAYS))).cast("q")
    for rows in (0, 100, 1_000):  # those that grow move, too
        for name in ARRAYS:
            arrays.reserve(name, rows)
        kernels.lengths(found, arrays.memory)
        assert found.tolist() == [len(arrays.of[name]) for name in ARRAYS]


@pytest.mark.slow
def test_rows_are_copied_as_a_whole() -> None:
    """An entry that takes another's place would keep a field of its own."""
    kernels, arrays = memory_kernels(), filled()
    kernels.copy_entry(0, ROW, arrays.memory)
    entries = arrays.of["entries"]
    assert entries.part(0, 1) == entries.part(ROW, ROW + 1)
    assert not any(entries.part(1, 2))


@cache
def memory_kernels() -> Any:
    """Kernels that touch every field of the memory, made of the layouts and compiled."""
    folder = ROOT / "build" / "native"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory_kernels.py").write_text(memory_kernels_text(), "utf-8")
    return compiled_kernels("build.native.memory_kernels")


def memory_kernels_text() -> str:
    """The text of the module of these kernels."""
    read, written, lengths = [], [], []
    for number, (name, field) in enumerate(NUMBERS):
        place = f"m.{name}[row].{field}" if field else f"m.{name}[row]"
        value = number % 256 if ARRAYS[name].code == "B" else number - 70
        read.append(f"    found[{number}] = {place}")
        written.append(f"    {place} = {value}")
    lengths = [f"    found[{number}] = len(m.{name})" for number, name in enumerate(ARRAYS)]
    return "\n".join(
        (
            '"""Kernels that touch every field of the memory."""',
            "",
            "from contrada.matching.kernels.memory import kernel as entry",
            "from contrada.matching.kernels.schema import Ints, Memory",
            *("", "", "@entry", "def read_all(row: int, found: Ints, m: Memory) -> None:"),
            '    """Reads every field of a row."""',
            *read,
            *("", "", "@entry", "def write_all(row: int, m: Memory) -> None:"),
            '    """Writes every field of a row."""',
            *written,
            *("", "", "@entry", "def lengths(found: Ints, m: Memory) -> None:"),
            '    """Reads the lengths of all arrays."""',
            *lengths,
            *("", "", "@entry", "def copy_entry(to: int, row: int, m: Memory) -> None:"),
            '    """Copies an entry."""',
            "    m.entries[to] = m.entries[row]",
            "",
        )
    )


REFUSED = {
    "an unknown name": "return nothing + 1",
    "a statement": "with h: pass",
    "a list": "return [h][0]",
    "a call of Python": "return print(h)",
    "two types": "x = h\n    x = m.names\n    return 0",
    "an argument of another type": "return text_hash(h, m, 0, 0)",
    "a loop over values": "for x in m.names:\n        h += x\n    return h",
}


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED)
def test_what_is_no_kernel_is_refused_with_its_place(body: str, tmp_path: Path) -> None:
    """A kernel would be translated to something else than it says, or fail without a line."""
    source = f"""
from contrada.matching.kernels.memory import kernel
from contrada.matching.kernels.schema import Memory
from contrada.matching.kernels.scratch import text_hash

@kernel
def wrong(h: int, m: Memory) -> int:
    {body}
"""
    (tmp_path / "wrong_kernels.py").write_text(source)
    done = subprocess.run(
        [sys.executable, "-m", "native.source", "wrong_kernels"],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT / 'src'}:{tmp_path}", "PYTHONWARNINGS": "error"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "wrong_kernels" in done.stderr.splitlines()[-1]


def test_arrays_of_other_items_are_refused() -> None:
    """A kernel would read four numbers as two."""
    assert NATIVE is not None
    narrow, wide = memoryview(bytearray(8)).cast("i"), memoryview(bytearray(8)).cast("q")
    with pytest.raises(TypeError, match="items of 4 bytes"):
        NATIVE.key_lookup_find_key(1, narrow, narrow)
    with pytest.raises(TypeError, match="items of 8 bytes"):
        NATIVE.key_lookup_find_key(1, wide, wide)
    with pytest.raises(TypeError):
        NATIVE.key_lookup_find_key("one", wide, narrow)
