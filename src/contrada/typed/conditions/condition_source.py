"""Accessors and conditions as expressions of Python, of which functions are compiled.

They are written as trees of `ast`, never as text: what a name or a constant holds cannot become
code.

Source: EPFL 2503 §4.5.4 (static filters).
"""

import ast
from collections.abc import Hashable
from types import FunctionType
from typing import Any, Final, Protocol

OBVENT: Final = "o"
"""What the object is called in a function."""

_LITERALS: Final = frozenset((bool, int, float, str, bytes, type(None)))


class Expressed(Protocol):
    """What can be written."""

    @property
    def key(self) -> Hashable:
        """What it has in common with its equals."""

    def expression(self, writing: "ConditionSource") -> ast.expr:
        """The expression that gives its value for the object."""


class ConditionSource:
    """What an expression is written into: a function's names, beside the object's.

    `literal` constants stand in the code; else all are names, as a predicate's captured constants.
    """

    def __init__(self, *, literal: bool) -> None:
        self.names: dict[str, Any] = {}
        self._literal = literal
        self._known: dict[int, str] = {}

    def constant(self, value: Any) -> ast.expr:
        """A constant: as it stands, or as a name."""
        if self._literal and type(value) in _LITERALS:
            return ast.Constant(value)
        name = self._known.get(id(value))
        if name is None:
            name = self._known[id(value)] = f"c{len(self._known)}"
            self.names[name] = value
        return ast.Name(name, ast.Load())

    def value(self, of: Expressed, *, looked_into: bool = True) -> ast.expr:
        """The value of an accessor. `looked_into` is False where nothing reads a part of it."""
        return of.expression(self)

    def call(self, function: Any, *arguments: ast.expr) -> ast.expr:
        """A call of a function that is a constant."""
        return ast.Call(self.constant(function), list(arguments), [])


def whole() -> ast.expr:
    """The object itself."""
    return ast.Name(OBVENT, ast.Load())


def joined(by: ast.boolop, parts: list[ast.expr]) -> ast.expr:
    """Several expressions by `and` or `or`; without parts, what that gives of none."""
    if len(parts) < 2:
        return parts[0] if parts else ast.Constant(isinstance(by, ast.And))
    return ast.BoolOp(by, parts)


def negated(part: ast.expr) -> ast.expr:
    """`not` of an expression."""
    return ast.UnaryOp(ast.Not(), part)


def compiled(name: str, body: list[ast.stmt], names: dict[str, Any]) -> FunctionType:
    """A function of the object. Cost: some tens of microseconds, and a few a node."""
    arguments = ast.arguments([], [ast.arg(OBVENT)], None, [], [], None, [])
    function = ast.FunctionDef("condition", arguments, body, [])
    module = ast.fix_missing_locations(ast.Module([function], []))
    space = dict(names)
    exec(compile(module, "<condition>", "exec"), space)
    made: FunctionType = space["condition"]
    made.__qualname__ = name
    return made
