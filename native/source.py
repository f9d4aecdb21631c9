"""`native_source`: the text of `contrada._native`, made of the kernels.

Kernels are Python functions on integers and arrays (see `contrada.matching.kernels.memory`). This
module translates them to Cython: it gives every variable its type, by the annotations of arguments
and from there by inference; replaces constants by their values; and makes of each entry a function
for Python. All kernels are one module in C, so that the compiler can inline any in any other.

The subset of Python: assignments, `if`, `while`, `for` over `range`, `return`, calls of kernels and
of the operations in `operations.h`. Everything else is an error that names its line.
"""

import ast
import hashlib
import importlib
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Final

os.environ.setdefault("CONTRADA_INTERPRETED", "1")

from contrada.matching.kernels import schema
from contrada.model.native import source_digest

HERE: Final = Path(__file__).parent
MODULES: Final = (
    "contrada.matching.kernels.scratch",
    "contrada.matching.kernels.evaluate",
    "contrada.matching.kernels.bucket_lookup",
    "contrada.matching.kernels.match",
    "contrada.matching.kernels.update",
    "contrada.matching.kernels.key_lookup",
    "contrada.matching.kernels.msgpack_writer",
    "contrada.matching.kernels.json_scanner",
    "contrada.matching.kernels.csv_scanner",
    "contrada.matching.kernels.pattern_runs",
    "contrada.matching.kernels.gossip_rounds",
)
CODEC: Final = ("contrada.model.algebra.plain_encoder", "contrada.model.algebra.plain_scanner")
DECORATORS: Final = ("kernel", "entry", "array_entry")

# --- types ----------------------------------------------------------------------------------------

Type = Any
"""A type: a name below, or a tuple of types."""

INT, FLOAT, MARKS, MEMORY = "int64_t", "double", "uint64_t", "Memory*"
ARRAYS: Final = {"B": "Bytes", "i": "RowNumbers", "q": "Ints"}
"""Arrays of numbers, by their code."""
NUMBERS: Final = {"Bytes": "uint8_t", "RowNumbers": "int32_t", "Ints": "int64_t", "Grid": "int64_t"}
ANNOTATIONS: Final = {
    "int": INT,
    "bool": INT,
    "float": FLOAT,
    "Marks": MARKS,
    "Memory": MEMORY,
    "Flags": "Bytes",
    "bytes": "Bytes",
    "ColumnRows": "Rows_COLUMN",
    "ColumnRow": "Row_COLUMN*",
    **{name: name for name in ("Bytes", "RowNumbers", "Ints", "Doubles", "Grid")},
}
BUNDLES: Final[dict[str, dict[str, str]]] = {}
"""Arrays that are passed together: named tuples of the modules, with the types of their fields."""

OPERATIONS: Final = {
    "double_bits": INT,
    "plain_bytes": INT,
    "sign_marks": MARKS,
    "first_marked": INT,
    "without_first": MARKS,
    "digits_at": INT,
    "are_same": INT,
    "put_bytes": None,
    "bytes_at": "Bytes",
    "random_word": MARKS,
    "below": INT,
}
"""The operations of `operations.h`, with the types of their results."""


def _array_of(name: str) -> str:
    layout = schema.ARRAYS[name]
    return f"Rows_{name}" if layout.fields else ARRAYS[layout.code]


def _row_type(array: str) -> str:
    return f"Row_{array.removeprefix('Rows_')}*"


def _text_of(of: Type) -> str:
    """Returns the type in Cython."""
    return f"({', '.join(map(_text_of, of))})" if isinstance(of, tuple) else of


def _annotated(node: ast.expr | None, where: str) -> Type:
    if isinstance(node, ast.Constant) and node.value is None:
        return None
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple):
        return tuple(_annotated(each, where) for each in node.slice.elts)
    if isinstance(node, ast.Name) and node.id in ANNOTATIONS:
        return ANNOTATIONS[node.id]
    if isinstance(node, ast.Name) and node.id in BUNDLES:
        return node.id
    raise SyntaxError(f"{where}: {ast.unparse(node) if node else 'no annotation'} is no type")


# --- functions ------------------------------------------------------------------------------------


@dataclass
class _Kernel:
    """A kernel: where it is, and its types."""

    module: ModuleType
    node: ast.FunctionDef
    decorator: str
    arguments: dict[str, Type] = field(default_factory=dict)
    result: Type = None

    def __post_init__(self) -> None:
        for each in self.node.args.args:
            where = f"{self.place}({each.arg})"
            self.arguments[each.arg] = _annotated(each.annotation, where)
        self.result = _annotated(self.node.returns, self.place)

    @property
    def place(self) -> str:
        return f"{self.module.__name__}:{self.node.lineno} {self.node.name}"

    @property
    def name(self) -> str:
        """Its name for Python."""
        return f"{self.module.__name__.rpartition('.')[2]}_{self.node.name}"

    @property
    def c_name(self) -> str:
        return f"{self.name}_in_c"


def _kernels(names: Iterable[str]) -> dict[int, _Kernel]:
    """Returns all kernels, by the identity of the interpreted function."""
    found: dict[int, _Kernel] = {}
    for name in names:
        module = importlib.import_module(name)
        tree = ast.parse(Path(str(module.__file__)).read_text("utf-8"))
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
                BUNDLES[node.name] = {
                    ast.unparse(each.target): _annotated(each.annotation, node.name)
                    for each in fields
                }
            if isinstance(node, ast.FunctionDef) and node.decorator_list:
                decorator = node.decorator_list[0]
                if isinstance(decorator, ast.Name) and decorator.id in DECORATORS:
                    function = getattr(module, node.name)
                    found[id(function)] = _Kernel(module, node, decorator.id)
    return found


class _Translation:
    """The translation of one kernel."""

    def __init__(self, of: _Kernel, kernels: dict[int, _Kernel], constants: dict[str, Any]) -> None:
        self._of, self._kernels, self._constants = of, kernels, constants
        self._types: dict[str, Type] = dict(of.arguments)

    def text(self) -> Iterator[str]:
        """Yields the lines of the function."""
        body = [each for each in self._of.node.body if not _is_docstring(each)]
        before = -1
        while (
            len(self._types) > before
        ):  # Until all variables have types: loops may need two turns.
            before = len(self._types)
            for statement in body:
                self._infer(statement)
        try:
            translated = [self._statement(each) for each in body]
        except _UnknownTypeError as unknown:
            raise SyntaxError(f"{self._of.place}: {unknown} has no type") from None
        arguments = ", ".join(f"{_text_of(t)} {n}" for n, t in self._of.arguments.items())
        result = "void" if self._of.result is None else _text_of(self._of.result)
        yield f"cdef inline {result} {self._of.c_name}({arguments}) noexcept nogil:"
        for name, of in self._types.items():
            if name not in self._of.arguments:
                yield f"    cdef {_text_of(of)} {name}"
        module = ast.Module(translated, [])
        for line in ast.unparse(ast.fix_missing_locations(module)).splitlines():
            yield f"    {line}"
        yield ""

    # --- types of variables -----------------------------------------------------------------------

    def _infer(self, node: ast.stmt) -> None:
        for each in ast.walk(node):
            if isinstance(each, ast.Assign):
                try:
                    of = self._expression(each.value)[1]
                except _UnknownTypeError:
                    continue
                for target in each.targets:
                    self._note(target, of)
            elif isinstance(each, ast.For):
                self._note(each.target, INT)

    def _note(self, target: ast.expr, of: Type) -> None:
        if isinstance(target, ast.Name):
            known = self._types.setdefault(target.id, of)
            if known != of and not {known, of} <= {INT, FLOAT, MARKS}:
                raise self._error(target, f"{target.id} is {known} and {of}")
        elif isinstance(target, ast.Tuple):
            for each, its in zip(target.elts, of, strict=True):
                self._note(each, its)

    def _error(self, node: ast.AST, reason: str) -> SyntaxError:
        line = getattr(node, "lineno", 0)
        text = ast.unparse(node).partition("\n")[0]
        return SyntaxError(f"{self._of.place}, line {line}: {reason}: {text}")

    # --- statements -------------------------------------------------------------------------------

    def _statement(self, node: ast.stmt) -> ast.stmt:
        match node:
            case ast.Assign():
                value = self._expression(node.value)[0]
                if isinstance(node.targets[0], ast.Subscript) and isinstance(value, ast.Call):
                    value = _without_address(value)  # A row is copied into a row.
                return ast.Assign([self._target(each) for each in node.targets], value)
            case ast.AugAssign():
                target: Any = self._target(node.target)
                value = self._expression(node.value)[0]
                return ast.AugAssign(target, node.op, value)
            case ast.If() | ast.While():
                test = self._expression(node.test)[0]
                body = [self._statement(each) for each in node.body]
                return type(node)(test, body, [self._statement(each) for each in node.orelse])
            case ast.For(
                target=ast.Name(), iter=ast.Call(func=ast.Name(id="range") as loop, args=bounds)
            ):
                values = [self._expression(each)[0] for each in bounds]
                body = [self._statement(each) for each in node.body]
                return ast.For(node.target, ast.Call(loop, values, []), body, [])
            case ast.Return():
                return ast.Return(self._expression(node.value)[0] if node.value else None)
            case ast.Expr(value=ast.Call()):
                return ast.Expr(self._expression(node.value)[0])
            case ast.Break() | ast.Continue() | ast.Pass():
                return node
        raise self._error(node, "no kernel has such a statement")

    def _target(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Tuple):
            return ast.Tuple([self._target(each) for each in node.elts], ast.Store())
        return node if isinstance(node, ast.Name) else self._place(node)[0]

    # --- expressions ------------------------------------------------------------------------------

    def _expression(self, node: ast.expr) -> tuple[ast.expr, Type]:
        """Returns a value and its type: numbers as 64 bits, rows as pointers."""
        match node:
            case ast.Constant(value=bool() | int() | float()):
                return self._constant(node.value)
            case ast.Name():
                return self._name(node)
            case ast.Attribute() | ast.Subscript():
                return self._value_at(node)
            case ast.Tuple():
                parts = [self._expression(each) for each in node.elts]
                return ast.Tuple([n for n, _ in parts], ast.Load()), tuple(t for _, t in parts)
            case ast.BinOp():
                return self._operation(node)
            case ast.UnaryOp():
                operand, of = self._expression(node.operand)
                if (number := _number(operand)) is not None and not isinstance(node.op, ast.Not):
                    return self._constant(-number if isinstance(node.op, ast.USub) else ~number)
                return ast.UnaryOp(node.op, operand), INT if isinstance(node.op, ast.Not) else of
            case ast.BoolOp():
                return ast.BoolOp(node.op, [self._expression(v)[0] for v in node.values]), INT
            case ast.Compare():
                left = self._expression(node.left)[0]
                others = [self._expression(each)[0] for each in node.comparators]
                return ast.Compare(left, node.ops, others), INT
            case ast.IfExp():
                body, of = self._expression(node.body)
                other, its = self._expression(node.orelse)
                test = self._expression(node.test)[0]
                return ast.IfExp(test, body, other), FLOAT if FLOAT in (of, its) else of
            case ast.Call(func=ast.Name(id=name), keywords=[]):
                return self._call(node, name)
        raise self._error(node, "no kernel has such an expression")

    def _constant(self, value: Any) -> tuple[ast.expr, Type]:
        if isinstance(value, float):
            return ast.Constant(value), FLOAT
        number = int(value)
        if number == -(2**63):  # C has no such literal.
            return ast.Name("INT64_MIN", ast.Load()), INT
        if abs(number) < 2**31:
            return ast.Constant(number), INT
        return ast.Name(f"{number}LL", ast.Load()), INT

    def _name(self, node: ast.Name) -> tuple[ast.expr, Type]:
        if node.id in self._types:
            return node, self._types[node.id]
        scope = vars(self._of.module)
        if node.id not in scope:
            raise _UnknownTypeError(node.id)
        value = scope[node.id]
        if isinstance(value, bool | int | float):
            return self._constant(value)
        if isinstance(value, list | bytes):
            of = _constant_type(self._of.module, node.id)
            name = f"{self._of.module.__name__.rpartition('.')[2]}_{node.id}"
            self._constants[name] = of, value
            return ast.Name(name, ast.Load()), of
        raise self._error(node, "no constant of a kernel")

    def _value_at(self, node: ast.expr) -> tuple[ast.expr, Type]:
        place, of = self._place(node)
        if of.startswith("Row_"):
            return _call("cython.address", place), of
        if of in ("uint8_t", "int32_t"):
            return _call("cython.cast", ast.Name(INT, ast.Load()), place), INT
        return place, of

    def _place(self, node: ast.expr) -> tuple[ast.expr, Type]:
        """Returns a place in memory, and its type in C; of a row `Row_NAME*`, without a pointer."""
        if isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name):
                of = self._expression(node.value)[1]
                if of == MEMORY:
                    return node, _array_of(node.attr)
                if of in BUNDLES:
                    return node, BUNDLES[of][node.attr]
                return node, _field_type(of)
            row, of = self._place(node.value)
            return ast.Attribute(row, node.attr, ast.Load()), _field_type(of)
        assert isinstance(node, ast.Subscript)
        array, of = self._expression(node.value)
        if of == "Grid" and isinstance(node.slice, ast.Tuple):
            row, column = (self._expression(each)[0] for each in node.slice.elts)
            width = ast.Attribute(array, "columns", ast.Load())
            index: ast.expr = ast.BinOp(ast.BinOp(row, ast.Mult(), width), ast.Add(), column)
        else:
            index = self._expression(node.slice)[0]
        place = ast.Subscript(ast.Attribute(array, "at", ast.Load()), index, ast.Load())
        if of == "Doubles":
            return place, FLOAT
        return place, NUMBERS.get(of) or _row_type(of)

    def _operation(self, node: ast.BinOp) -> tuple[ast.expr, Type]:
        (left, one), (right, other) = self._expression(node.left), self._expression(node.right)
        if (a := _number(left)) is not None and (b := _number(right)) is not None:
            both = ast.BinOp(ast.Constant(a), node.op, ast.Constant(b))
            return self._constant(eval(ast.unparse(both)))
        if isinstance(node.op, ast.LShift) and isinstance(left, ast.Constant):
            left = _call("cython.cast", ast.Name(INT, ast.Load()), left)
        of = INT
        if isinstance(node.op, ast.Div) or FLOAT in (one, other):
            of = FLOAT
        elif MARKS in (one, other):
            of = MARKS
        return ast.BinOp(left, node.op, right), of

    def _call(self, node: ast.Call, name: str) -> tuple[ast.expr, Type]:
        if name == "len":
            array = self._expression(node.args[0])[0]
            return ast.Attribute(array, "size", ast.Load()), INT
        if name == "prefetch":
            array, row = self._expression(node.args[0])[0], self._expression(node.args[1])[0]
            place = ast.Subscript(ast.Attribute(array, "at", ast.Load()), row, ast.Load())
            return _call("prefetch", _call("cython.address", place)), None
        if name == "number_at":
            address, row, code = node.args
            assert isinstance(code, ast.Constant)
            assert isinstance(code.value, str)
            values = [self._expression(each)[0] for each in (address, row)]
            return _call(f"number_at_{code.value}", *values), FLOAT if code.value in "fd" else INT
        parts = [self._expression(each) for each in node.args]
        values = [value for value, _ in parts]
        if name in ("int", "float"):
            of = INT if name == "int" else FLOAT
            return _call("cython.cast", ast.Name(of, ast.Load()), *values), of
        if name in ("min", "max"):
            return _call(name, *values), FLOAT if FLOAT in (t for _, t in parts) else INT
        if name in OPERATIONS:
            return _call(name, *values), OPERATIONS[name]
        called = self._kernels.get(id(vars(self._of.module).get(name)))
        if called is None:
            raise self._error(node, "no kernel calls this")
        for (_, of), (argument, expected) in zip(parts, called.arguments.items(), strict=True):
            if of != expected and not {of, expected} <= {INT, FLOAT, MARKS}:
                raise self._error(node, f"{argument} is {expected}, not {of}")
        return _call(called.c_name, *values), called.result


def _number(node: ast.expr) -> int | None:
    """Returns the number of a translated constant."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name) and node.id.endswith("LL") and node.id[0] in "-0123456789":
        return int(node.id.removesuffix("LL"))
    return None


class _UnknownTypeError(Exception):
    """A variable whose type is not known yet."""


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _call(name: str, *values: ast.expr) -> ast.expr:
    function: ast.expr = ast.Name(name.partition(".")[0], ast.Load())
    if "." in name:
        function = ast.Attribute(function, name.partition(".")[2], ast.Load())
    return ast.Call(function, list(values), [])


def _without_address(value: ast.Call) -> ast.expr:
    is_address = isinstance(value.func, ast.Attribute) and value.func.attr == "address"
    return value.args[0] if is_address else value


def _layout(row: str) -> schema.Layout:
    name = row.removeprefix("Row_").removesuffix("*")
    return schema.COLUMN if name == "COLUMN" else schema.ARRAYS[name]


def _field_type(row: str) -> str:
    return NUMBERS[ARRAYS[_layout(row).code]]


def _constant_type(module: ModuleType, name: str) -> str:
    tree = ast.parse(Path(str(module.__file__)).read_text("utf-8"))
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == name:
            return str(_annotated(node.annotation, f"{module.__name__}.{name}"))
    raise SyntaxError(f"{module.__name__}.{name} has no annotation")


# --- the module -----------------------------------------------------------------------------------


def _structures() -> tuple[list[str], list[str]]:
    """Returns the rows and the memory, in C and as Cython knows them."""
    c, cython = [], []
    for name, layout in {**schema.ARRAYS, "COLUMN": schema.COLUMN}.items():
        if layout.fields:
            kind = NUMBERS[ARRAYS[layout.code]]
            c += [f"typedef struct {{ {kind} {', '.join(layout.fields)}; }} Row_{name};"]
            c += [f"typedef struct {{ Row_{name} *at; int64_t size; }} Rows_{name};"]
            cython += [f"ctypedef struct Row_{name}:"]
            cython += [f"    {kind} {each}" for each in layout.fields]
            cython += [f"ctypedef struct Rows_{name}:", f"    Row_{name}* at", "    int64_t size"]
    for name, fields in BUNDLES.items():
        declared = [f"{kind} {each}" for each, kind in fields.items()]
        c += [f"typedef struct {{ {'; '.join(declared)}; }} {name};"]
        cython += [f"ctypedef struct {name}:", *(f"    {each}" for each in declared)]
    arrays = [f"{_array_of(name)} {name}" for name in schema.ARRAYS]
    c += [f"typedef struct {{ {'; '.join(arrays)}; }} Memory;"]
    return c, [*cython, "ctypedef struct Memory:", *(f"    {each}" for each in arrays)]


def _constant_texts(constants: dict[str, Any]) -> tuple[list[str], list[str]]:
    c, cython = [], []
    for name, (of, values) in constants.items():
        kind = "double" if of == "Doubles" else NUMBERS[of]
        numbers = ", ".join(repr(float(v)) if of == "Doubles" else str(int(v)) for v in values)
        c += [f"static {kind} {name}_values[] = {{{numbers}}};"]
        c += [f"static const {of} {name} = {{{name}_values, {len(values)}}};"]
        cython += [f"const {of} {name}"]
    return c, cython


_ARRAYS_IN_CYTHON: Final = """\
ctypedef struct Bytes:
    uint8_t* at
    int64_t size
ctypedef struct RowNumbers:
    int32_t* at
    int64_t size
ctypedef struct Ints:
    int64_t* at
    int64_t size
ctypedef struct Doubles:
    double* at
    int64_t size
ctypedef struct Grid:
    int64_t* at
    int64_t size
    int64_t columns
int64_t double_bits(double)
int64_t plain_bytes(Bytes, int64_t)
uint64_t sign_marks(Bytes, int64_t, int64_t, int64_t)
int64_t first_marked(uint64_t)
uint64_t without_first(uint64_t)
int64_t digits_at(Bytes, int64_t)
int64_t are_same(Bytes, int64_t, Bytes, int64_t, int64_t)
void put_bytes(Bytes, int64_t, Bytes, int64_t, int64_t)
Bytes bytes_at(int64_t, int64_t)
uint64_t random_word(uint64_t, int64_t)
int64_t below(uint64_t, int64_t)
void prefetch(void*)
int64_t number_at_b(int64_t, int64_t)
int64_t number_at_h(int64_t, int64_t)
int64_t number_at_i(int64_t, int64_t)
int64_t number_at_q(int64_t, int64_t)
int64_t number_at_B(int64_t, int64_t)
int64_t number_at_H(int64_t, int64_t)
int64_t number_at_I(int64_t, int64_t)
double number_at_f(int64_t, int64_t)
double number_at_d(int64_t, int64_t)"""

_HEAD: Final = """\
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# Made by native/source.py of the kernels in Python. Do not edit.
cimport cython
from libc.stdint cimport INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from cpython.buffer cimport PyBUF_ND, PyBuffer_Release, PyObject_GetBuffer
"""

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


def _wrapper(of: _Kernel) -> Iterator[str]:
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
        yield f"    cdef {_text_of(of.result)} result"
    for name, kind in arrays:
        yield f"    cdef {kind} {name}_array"
    yield f"    cdef Py_buffer[{len(parts) or 1}] held"
    yield "    cdef int locked = 0"
    yield "    try:"
    for place, (given, array, kind) in enumerate(parts):
        held, row = f"held[{place}]", NUMBERS.get(kind) or _row_type(kind)[:-1]
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


def _indented(lines: list[str]) -> str:
    return "\n".join(f"    {each}" for each in lines)


def native_source(*more: str) -> str:
    """Returns the source of `contrada._native` in Cython, with these modules of kernels, too."""
    kernels = _kernels((*MODULES, *more))
    constants: dict[str, Any] = {}
    bodies: list[str] = []
    for each in kernels.values():
        bodies += _Translation(each, kernels, constants).text()
    for each in kernels.values():
        if each.decorator != "kernel":
            bodies += _wrapper(each)
    c_rows, rows = _structures()
    c_constants, cython_constants = _constant_texts(constants)
    c = "\n".join([(HERE / "operations.h").read_text("utf-8"), *c_rows, *c_constants])
    known = [*_ARRAYS_IN_CYTHON.splitlines(), *rows, *cython_constants]
    external = f'cdef extern from * nogil:\n    """\n{c}\n    """\n{_indented(known)}'
    sources = f"SOURCES = {source_digest()!r}"
    text = "\n\n".join([_HEAD, external, _BUFFERS, sources, "\n".join(bodies), codec_source()])
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
