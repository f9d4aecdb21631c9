"""`native_source`: the text of `contrada._native`, made of the kernels and the codec.

Kernels are translated (see `translation`), and each entry gets a function for Python. All kernels
are one module in C, so that the compiler can inline any in any other.
"""

import hashlib
import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent
from typing import Any, Final

os.environ.setdefault("CONTRADA_INTERPRETED", "1")

from contrada.matching.kernels import schema
from contrada.model.native import source_digest
from native.translation import (
    ARRAYS,
    BUNDLES,
    FLOAT,
    HEADER,
    INT,
    MARKS,
    MEMORY,
    NUMBERS,
    NUMBERS_AT,
    OPERATIONS,
    Kernel,
    Translation,
    array_of,
    kernels_in,
    row_type,
    text_of,
)

MODULES: Final = (
    "contrada.matching.kernels.scratch",
    "contrada.matching.kernels.evaluate",
    "contrada.matching.kernels.text_store",
    "contrada.matching.kernels.bucket_lookup",
    "contrada.matching.kernels.match",
    "contrada.matching.kernels.update",
    "contrada.matching.kernels.box_overlap",
    "contrada.matching.kernels.column_visits",
    "contrada.matching.kernels.batch_match",
    "contrada.matching.kernels.filter_reader",
    "contrada.matching.kernels.key_lookup",
    "contrada.matching.kernels.msgpack_writer",
    "contrada.matching.kernels.json_scanner",
    "contrada.matching.kernels.csv_scanner",
    "contrada.matching.kernels.pattern_runs",
    "contrada.matching.kernels.gossip_rounds",
)
CODEC: Final = (
    "contrada.model.algebra.plain_encoder",
    "contrada.model.algebra.plain_scanner",
    "contrada.model.algebra.plain_reader",
)


def _structures() -> Iterator[tuple[str, str]]:
    """Yields arrays, rows, bundles and the memory, in C and as Cython knows them."""
    arrays = NUMBERS | {"Doubles": "double"}
    for name, kind in arrays.items():
        more = ["int64_t columns"] if name == "Grid" else []
        yield _structure(name, [f"{kind}* at", "int64_t size", *more])
    for name, layout in {**schema.ARRAYS, "COLUMN": schema.COLUMN}.items():
        if layout.fields:
            kind = NUMBERS[ARRAYS[layout.code]]
            yield _structure(f"Row_{name}", [f"{kind} {each}" for each in layout.fields])
            yield _structure(f"Rows_{name}", [f"Row_{name}* at", "int64_t size"])
    for name, fields in BUNDLES.items():
        yield _structure(name, [f"{kind} {each}" for each, kind in fields.items()])
    yield _structure("Memory", [f"{array_of(name)} {name}" for name in schema.ARRAYS])


def _structure(name: str, fields: list[str]) -> tuple[str, str]:
    lines = [f"ctypedef struct {name}:", *(f"    {each}" for each in fields)]
    return f"typedef struct {{ {'; '.join(fields)}; }} {name};", "\n".join(lines)


def _operations() -> Iterator[str]:
    """Yields the declarations of the operations for Cython."""
    for name, (result, arguments) in OPERATIONS.items():
        yield f"{result or 'void'} {name}({arguments})"
    for code, result in NUMBERS_AT.items():
        yield f"{result} number_at_{code}(int64_t, int64_t)"
    yield "void prefetch(void*)"


def _constant_texts(constants: dict[str, Any]) -> tuple[list[str], list[str]]:
    c, cython = [], []
    for name, (of, values) in constants.items():
        kind = "double" if of == "Doubles" else NUMBERS[of]
        numbers = ", ".join(repr(float(v)) if of == "Doubles" else str(int(v)) for v in values)
        c += [f"static {kind} {name}_values[] = {{{numbers}}};"]
        c += [f"static const {of} {name} = {{{name}_values, {len(values)}}};"]
        cython += [f"const {of} {name}"]
    return c, cython


_HEAD: Final = '''\
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# Made by native/source.py of the kernels in Python. Do not edit.
cimport cython
from libc.stdint cimport INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from cpython.buffer cimport PyBUF_ND, PyBuffer_Release, PyObject_GetBuffer
from cpython.ref cimport Py_INCREF

cdef extern from "Python.h":
    """
    #include <structmember.h>
    #define new_object_of(kind) PyType_GenericAlloc((PyTypeObject*)(kind), 0)

    /* The slots of a class are members of its objects, which a setter of attributes would look up,
       check and call: three times as long. */
    static inline PyObject** place_of(PyObject* of, PyObject* name) {
        PyObject* slot = _PyType_Lookup(Py_TYPE(of), name);
        if (slot == NULL || !Py_IS_TYPE(slot, &PyMemberDescr_Type)
                || ((PyMemberDescrObject*)slot)->d_member->type != T_OBJECT_EX)
            return NULL;
        return (PyObject**)((char*)of + ((PyMemberDescrObject*)slot)->d_member->offset);
    }

    static inline PyObject* get_slot_of(PyObject* of, PyObject* name) {
        PyObject** place = place_of(of, name);
        if (place == NULL || *place == NULL) return PyObject_GetAttr(of, name);
        return Py_NewRef(*place);
    }

    static inline int set_slot_of(PyObject* of, PyObject* name, PyObject* value) {
        PyObject** place = place_of(of, name);
        if (place == NULL) return PyObject_GenericSetAttr(of, name, value);
        PyObject* before = *place;
        Py_INCREF(value);
        *place = value;
        Py_XDECREF(before);
        return 0;
    }
    """
    void untrack "PyObject_GC_UnTrack"(object)
    int PyGC_Disable()
    int PyGC_Enable()
    list PyList_New(Py_ssize_t)
    void put_item "PyList_SET_ITEM"(list, Py_ssize_t, object)
    object new_object "new_object_of"(object)
    object get_slot "get_slot_of"(object, object)
    int set_slot "set_slot_of"(object, object, object) except -1
'''

_BUFFERS: Final = '''\
cdef int get_buffer(object given, Py_buffer* held, Py_ssize_t item, int dimensions) except -1:
    """Locks the memory of an array whose items have this size."""
    PyObject_GetBuffer(given, held, PyBUF_ND)
    if held.itemsize != item or held.ndim != dimensions:
        found = f"{held.ndim} dimensions, items of {held.itemsize} bytes"
        PyBuffer_Release(held)
        raise TypeError(f"{found}: expected {dimensions} and {item}")
    return 0


cdef void release(Py_buffer* held, int count):
    cdef int place
    for place in range(count):
        PyBuffer_Release(&held[place])


def address_of(given):
    """Returns the address of the memory of an array, which the caller keeps alive."""
    cdef Py_buffer held
    PyObject_GetBuffer(given, &held, PyBUF_ND)
    address = <size_t>held.buf
    PyBuffer_Release(&held)
    return address
'''

_KEYS: Final = '''\
cdef list all_keys(Memory* m, int64_t count):
    """Returns the keys in the output: a list that grows takes a tenth of a match of a thousand.

    Without collections meanwhile, since one may run code that matches, too, or frees the memory.
    """
    cdef int64_t place
    cdef object key
    collects = PyGC_Disable()
    try:
        keys = PyList_New(count)
    finally:
        if collects:
            PyGC_Enable()
    for place in range(count):
        key = m.out.at[place]
        Py_INCREF(key)  # The list owns one reference more.
        put_item(keys, place, key)
    return keys


def found_keys(list found, given, dict asked, keys, size_t memory):
    """Returns the keys of a mapping, of the attributes in `asked`, or of a span, by one call.

    None for a mapping that is not plain, another type, or filters to be verified: code of a
    finalizer may remove them before. The answer of the kernel `match` if more is to be done:
    `found`, an empty list, gets the keys then. `keys` are those of the slots.
    """
    cdef Memory* m = <Memory*>memory
    cdef PlainWriter writer = _writer
    cdef Bytes message
    cdef int64_t answer, place, work = m.counters.at[0].work
    if type(given) is dict:
        try:
            if not writer.put_asked(given, asked):
                return None
        except (OverflowError, UnicodeEncodeError):
            return None
        message.at, message.size = writer.out, writer.at
    elif type(given) is bytes:
        message.at, message.size = <bytes>given, len(<bytes>given)
    else:
        return None
    answer = match_match_in_c(message, m)
    if answer > 0 and answer & 3 == 0:
        return all_keys(m, answer >> 2)
    if answer > 0 and answer & 1:
        if m.counters.at[0].doubted:
            m.counters.at[0].seen -= 1  # It will be matched once more.
            m.counters.at[0].matched -= 1
            m.counters.at[0].work = work
            return None
        for place in range(answer >> 2):
            found.append((<list?>keys)[m.out.at[place]])
        answer -= 1
    else:
        for place in range(answer >> 2):
            found.append(m.out.at[place])
    return answer if answer < 0 or answer & 3 else found
'''


def _wrapper(of: Kernel) -> Iterator[str]:
    """Yields the lines of the function for Python: it locks arrays while the kernel runs."""
    plain = {INT: "int64_t ", FLOAT: "double ", MARKS: "uint64_t ", MEMORY: "size_t "}
    named = [plain.get(kind, "") + name for name, kind in of.arguments.items()]
    arrays = [(name, kind) for name, kind in of.arguments.items() if kind not in plain]
    values = [
        f"<Memory*>{name}" if kind == MEMORY else name if kind in plain else f"{name}_array"
        for name, kind in of.arguments.items()
    ]
    call = f"{of.c_name}({', '.join(values)})"
    result = "" if of.result is None else "result = "
    parts: list[tuple[str, str, str]] = []  # the object, the array in C, and its type
    for name, kind in arrays:
        if kind in BUNDLES:
            fields = BUNDLES[kind].items()
            parts += [(f"{name}.{each}", f"{name}_array.{each}", its) for each, its in fields]
        else:
            parts.append((name, f"{name}_array", kind))
    yield f"def {of.name}({', '.join(named)}):"
    if result:
        yield f"    cdef {text_of(of.result)} result"
    for name, kind in arrays:
        yield f"    cdef {kind} {name}_array"
    yield f"    cdef Py_buffer[{len(parts) or 1}] held"
    yield "    cdef int locked = 0"
    yield "    try:"
    for place, (given, array, kind) in enumerate(parts):
        held, row = f"held[{place}]", NUMBERS.get(kind) or row_type(kind)[:-1]
        item = NUMBERS.get(kind, "int64_t")
        yield f"        get_buffer({given}, &{held}, sizeof({item}), {2 if kind == 'Grid' else 1})"
        yield "        locked += 1"
        yield f"        {array}.at = <{row}*>{held}.buf"
        is_numbers = kind in NUMBERS
        size = f"{held}.shape[0]" if is_numbers else f"{held}.len // <Py_ssize_t>sizeof({row})"
        yield f"        {array}.size = {size}"
        if kind == "Grid":
            yield f"        {array}.columns = {held}.shape[1]"
    if of.decorator == "array_entry":
        yield "        with nogil:"
        yield f"            {result}{call}"
    else:
        yield f"        {result}{call}"
    yield "    finally:"
    yield "        release(held, locked)"
    if result:
        yield "    return result"
    yield ""


def native_source(*more: str) -> str:
    """Returns the source of `contrada._native` in Cython, with these modules of kernels, too."""
    kernels = kernels_in((*MODULES, *more))
    constants: dict[str, Any] = {}
    bodies: list[str] = []
    for each in kernels.values():
        bodies += Translation(each, kernels, constants).text()
    for each in kernels.values():
        if each.decorator != "kernel":
            bodies += _wrapper(each)
    structures = [*_structures()]
    c_constants, cython_constants = _constant_texts(constants)
    c = "\n".join(["#include <stdint.h>", *(in_c for in_c, _ in structures), HEADER, *c_constants])
    known = "\n".join([*(of for _, of in structures), *_operations(), *cython_constants])
    external = f'cdef extern from * nogil:\n    """\n{c}\n    """\n{indent(known, "    ")}'
    sources = f"SOURCES = {source_digest()!r}"
    text = "\n\n".join(
        [_HEAD, external, _BUFFERS, sources, "\n".join(bodies), codec_source(), _KEYS]
    )
    return f"{text}\nSOURCE = {hashlib.sha256(text.encode()).hexdigest()!r}\n"


def codec_source() -> str:
    """Returns the source of the codec: it is Cython's Python already, with types of its own."""
    lines: list[str] = []
    for name in CODEC:
        text = Path(str(importlib.import_module(name).__file__)).read_text("utf-8")
        lines += text.partition("\nfrom __future__ import annotations\n")[2].splitlines()
    of_each_other = tuple(f"from {name} import" for name in CODEC)
    return "\n".join(line for line in lines if not line.startswith(of_each_other))


if __name__ == "__main__":
    sys.stdout.write(native_source(*sys.argv[1:]))
