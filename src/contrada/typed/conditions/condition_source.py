"""`ConditionSource`: accessors and conditions as expressions of Python, compiled to functions.

Expressions are trees of `ast`, never text: a name or a constant cannot become code.

Source: EPFL 2503 §4.5.4 (static filters).
"""

import ast
from types import FunctionType
from typing import Any, Final

OBVENT: Final = "o"
"""The name of the object in a function."""

_LITERALS: Final = frozenset((bool, int, float, str, bytes, type(None)))


class ConditionSource:
    """The names that an expression uses, beside that of the object.

    With `literal`, constants are part of the code; else all are names, like a predicate's captured
    constants.
    """

    def __init__(self, *, literal: bool) -> None:
        self.names: dict[str, Any] = {}
        self._literal = literal
        self._known: dict[int, str] = {}

    def constant(self, value: Any) -> ast.expr:
        """Returns a constant as a literal, or as a name."""
        if self._literal and type(value) in _LITERALS:
            return ast.Constant(value)
        name = self._known.get(id(value))
        if name is None:
            name = self._known[id(value)] = f"c{len(self._known)}"
            self.names[name] = value
        return ast.Name(name, ast.Load())

    def value(self, of: Any, *, is_read: bool = True) -> ast.expr:
        """Returns the value of an accessor; `is_read` is False if no part of it is read."""
        found: ast.expr = of.expression(self)
        return found

    def call(self, function: Any, *arguments: ast.expr) -> ast.expr:
        """Returns a call of a constant function."""
        return ast.Call(self.constant(function), list(arguments), [])


def obvent_name() -> ast.expr:
    """Returns the name of the object, as an expression."""
    return ast.Name(OBVENT, ast.Load())


def join(by: ast.boolop, parts: list[ast.expr]) -> ast.expr:
    """Joins expressions by `and` or `or`. Without parts: True or False."""
    if len(parts) < 2:
        return parts[0] if parts else ast.Constant(isinstance(by, ast.And))
    return ast.BoolOp(by, parts)


def negate(part: ast.expr) -> ast.expr:
    """Returns `not` of an expression."""
    return ast.UnaryOp(ast.Not(), part)


def compile_function(name: str, body: list[ast.stmt], names: dict[str, Any]) -> FunctionType:
    """Returns a function of the object. Cost: some tens of microseconds, a few for each node."""
    arguments = ast.arguments([], [ast.arg(OBVENT)], None, [], [], None, [])
    function = ast.FunctionDef("condition", arguments, body, [])
    module = ast.fix_missing_locations(ast.Module([function], []))
    space = dict(names)
    exec(compile(module, "<condition>", "exec"), space)
    made: FunctionType = space["condition"]
    made.__qualname__ = name
    return made
