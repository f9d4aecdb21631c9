"""`Translation`: kernels, which are functions in Python, as functions in Cython.

Kernels work on integers and arrays (see `contrada.matching.kernels.memory`). A translation gives
every variable its type, by the annotations of arguments and from there by inference, and replaces
constants by their values.

The subset of Python: assignments, `if`, `while`, `for` over `range`, `return`, calls of kernels and
of the operations in `operations.h`. Everything else is an error that names its line.
"""

import ast
import importlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from contrada.matching.kernels import schema

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

HEADER: Final = (Path(__file__).parent / "operations.h").read_text("utf-8")
OPERATIONS: Final = {
    name: (None if result == "void" else result, arguments)
    for result, name, arguments in re.findall(
        r"^static inline (\w+) (\w+)\((.*?)\) {", HEADER, re.M
    )
}
"""The results and the arguments of the operations in C."""

NUMBERS_AT: Final = {code: FLOAT if code in "fd" else INT for code in "bhiqBHIfd"}
"""The results of `number_at`, by the code of the type in memory."""


def array_of(name: str) -> str:
    """Returns the type of an array of the memory."""
    layout = schema.ARRAYS[name]
    return f"Rows_{name}" if layout.fields else ARRAYS[layout.code]


def row_type(array: str) -> str:
    """Returns the type of a row of an array."""
    return f"Row_{array.removeprefix('Rows_')}*"


def text_of(of: Type) -> str:
    """Returns the type in Cython."""
    return f"({', '.join(map(text_of, of))})" if isinstance(of, tuple) else of


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
class Kernel:
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
        """Its module, line and name."""
        return f"{self.module.__name__}:{self.node.lineno} {self.node.name}"

    @property
    def name(self) -> str:
        """Its name for Python."""
        return f"{self.module.__name__.rpartition('.')[2]}_{self.node.name}"

    @property
    def c_name(self) -> str:
        """Its name in C."""
        return f"{self.name}_in_c"


def kernels_in(names: Iterable[str]) -> dict[int, Kernel]:
    """Returns all kernels, by the identity of the interpreted function."""
    found: dict[int, Kernel] = {}
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
                    found[id(function)] = Kernel(module, node, decorator.id)
    return found


class Translation:
    """The translation of one kernel."""

    def __init__(self, of: Kernel, kernels: dict[int, Kernel], constants: dict[str, Any]) -> None:
        self._of, self._kernels, self._constants = of, kernels, constants
        self._types: dict[str, Type] = dict(of.arguments)

    def text(self) -> Iterator[str]:
        """Yields the lines of the function."""
        body = [each for each in self._of.node.body if not _is_docstring(each)]
        before = -1
        while len(self._types) > before:  # A loop may use a variable before its assignment.
            before = len(self._types)
            for statement in body:
                self._infer(statement)
        try:
            translated = [self._statement(each) for each in body]
        except _UnknownTypeError as unknown:
            raise SyntaxError(f"{self._of.place}: {unknown} has no type") from None
        arguments = ", ".join(f"{text_of(t)} {n}" for n, t in self._of.arguments.items())
        result = "void" if self._of.result is None else text_of(self._of.result)
        yield f"cdef inline {result} {self._of.c_name}({arguments}) noexcept nogil:"
        for name, of in self._types.items():
            if name not in self._of.arguments:
                yield f"    cdef {text_of(of)} {name}"
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
                after = [self._statement(each) for each in node.orelse]
                return ast.For(node.target, ast.Call(loop, values, []), body, after)
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
            case ast.Attribute(value=ast.Name(id=name)) if self._is_module(name):
                return self._constant(getattr(vars(self._of.module)[name], node.attr))
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
                return self._call(node, name, self._of.module)
            case ast.Call(func=ast.Attribute(ast.Name(id=name), function), keywords=[]):
                return self._call(node, function, vars(self._of.module)[name])
        raise self._error(node, "no kernel has such an expression")

    def _is_module(self, name: str) -> bool:
        return isinstance(vars(self._of.module).get(name), ModuleType)

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
                    return node, array_of(node.attr)
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
        return place, NUMBERS.get(of) or row_type(of)

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

    def _call(self, node: ast.Call, name: str, module: ModuleType) -> tuple[ast.expr, Type]:
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
            return _call(f"number_at_{code.value}", *values), NUMBERS_AT[code.value]
        parts = [self._expression(each) for each in node.args]
        values = [value for value, _ in parts]
        if name in ("int", "float"):
            of = INT if name == "int" else FLOAT
            return _call("cython.cast", ast.Name(of, ast.Load()), *values), of
        if name in ("min", "max"):
            return _call(name, *values), FLOAT if FLOAT in (t for _, t in parts) else INT
        if name in OPERATIONS:
            return _call(name, *values), OPERATIONS[name][0]
        called = self._kernels.get(id(vars(module).get(name)))
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
