"""Expressions of CESQL as trees, and their text.

As in the specification, `a NOT LIKE p`, `a NOT IN s` and `a != b` are `Not` of the other. A chain
of one logical operator is one node, so a thousand alternatives are not a thousand levels.

Invariant: `parse(str(expression)) == expression` for every tree of the parser.

Source: CloudEvents, CESQL 1.0.0 §2 (the syntax).
"""

from dataclasses import dataclass
from typing import TypeAlias

CesqlValue: TypeAlias = bool | int | float | str
"""A Boolean, an Integer or a String. A float occurs only as the value of an attribute."""


class Expression:
    """A node of a tree: one of the classes below. Its text is CESQL."""

    __slots__ = ()

    def __str__(self) -> str:
        return _text(self)


@dataclass(frozen=True, slots=True)
class Constant(Expression):
    """A literal. `quote` is the one around a text, "" around no text."""

    value: CesqlValue
    quote: str = ""


@dataclass(frozen=True, slots=True)
class Attribute(Expression):
    """The value of an attribute, named in small letters."""

    name: str


@dataclass(frozen=True, slots=True)
class Exists(Expression):
    """Whether the event has the attribute."""

    name: str


@dataclass(frozen=True, slots=True)
class Call(Expression):
    """A function's value. The name is in capitals."""

    name: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Not(Expression):
    """The opposite of a Boolean."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class Negative(Expression):
    """Minus an Integer."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class Like(Expression):
    """Whether a String is like a pattern of `%`, `_` and characters."""

    operand: Expression
    pattern: Constant


@dataclass(frozen=True, slots=True)
class In(Expression):
    """Whether a value equals one of several others."""

    operand: Expression
    elements: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Equal(Expression):
    """Whether two values are equal, the left one cast to the right one's type."""

    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Ordered(Expression):
    """Whether two Integers are in an order: `<`, `<=`, `>` or `>=`."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Arithmetic(Expression):
    """Two Integers joined by `+ - * / %`."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Logic(Expression):
    """Two or more Booleans joined by one operator, AND, OR or XOR, from left to right."""

    operator: str
    operands: tuple[Expression, ...]


def _text(expression: Expression) -> str:
    match expression:
        case Constant(str(value), quote):
            return quote + value.replace(quote, "\\" + quote) + quote
        case Constant(value, _):
            return str(value).upper()
        case Attribute(name):
            return name
        case Exists(name):
            return f"EXISTS {name}"
        case Call(name, arguments):
            return f"{name}({', '.join(map(str, arguments))})"
        case Not(operand):
            return f"NOT {_inside(operand)}"
        case Negative(operand):
            return f"- {_inside(operand)}"
        case Like(operand, pattern):
            return f"{_inside(operand)} LIKE {pattern}"
        case In(operand, elements):
            return f"{_inside(operand)} IN ({', '.join(map(str, elements))})"
        case Equal(left, right):
            return f"{_inside(left)} = {_inside(right)}"
        case Ordered(operator, left, right) | Arithmetic(operator, left, right):
            return f"{_inside(left)} {operator} {_inside(right)}"
        case Logic(operator, operands):
            return f" {operator} ".join(map(_inside, operands))
        case _:
            raise TypeError(f"found {expression!r}, expected one of the classes of this module")


def _inside(expression: Expression) -> str:
    """Returns the text of a part, in parentheses if it would be ambiguous."""
    is_bare = isinstance(expression, Constant | Attribute | Exists | Call)
    return str(expression) if is_bare else f"({expression})"


def parts_of(expression: Expression) -> tuple[Expression, ...]:
    """Returns the direct operands, from left to right, without patterns of LIKE."""
    match expression:
        case Call(_, parts) | Logic(_, parts):
            return parts
        case Not(operand) | Negative(operand) | Like(operand, _):
            return (operand,)
        case In(operand, elements):
            return (operand, *elements)
        case Equal(left, right) | Ordered(_, left, right) | Arithmetic(_, left, right):
            return (left, right)
        case _:
            return ()


def names_in(expression: Expression) -> tuple[str, ...]:
    """Returns the names of the attributes in an expression, each once, in their order."""
    names: dict[str, None] = {}
    waiting = [expression]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Attribute | Exists):
            names[part.name] = None
        waiting.extend(reversed(parts_of(part)))
    return tuple(names)
