"""Expressions of CESQL as trees, and their text.

As in the specification, `a NOT LIKE p`, `a NOT IN s` and `a != b` are `Not` of the other. A chain
of one logical operator is one node, so a thousand alternatives are not a thousand levels.

Invariant: `parse(str(expression)) == expression` for every tree of the parser.

Source: CloudEvents, CESQL 1.0.0 §2 (the syntax).
"""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

CesqlValue: TypeAlias = bool | int | float | str
"""A Boolean, an Integer or a String. A float occurs only as the value of an attribute."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal. `quote` is the one around a text, "" around no text."""

    value: CesqlValue
    quote: str = ""

    def __str__(self) -> str:
        if isinstance(self.value, str):
            escaped = self.value.replace(self.quote, "\\" + self.quote)
            return f"{self.quote}{escaped}{self.quote}"
        return str(self.value).upper()


@dataclass(frozen=True, slots=True)
class Attribute:
    """The value of an attribute, named in small letters."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Exists:
    """Whether the event has the attribute."""

    name: str

    def __str__(self) -> str:
        return f"EXISTS {self.name}"


@dataclass(frozen=True, slots=True)
class Call:
    """A function's value. The name is in capitals."""

    name: str
    arguments: tuple["Expression", ...]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.arguments))})"


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite of a Boolean."""

    operand: "Expression"

    def __str__(self) -> str:
        return f"NOT {_inside(self.operand)}"


@dataclass(frozen=True, slots=True)
class Negative:
    """Minus an Integer."""

    operand: "Expression"

    def __str__(self) -> str:
        return f"- {_inside(self.operand)}"


@dataclass(frozen=True, slots=True)
class Like:
    """Whether a String is like a pattern of `%`, `_` and characters."""

    operand: "Expression"
    pattern: Constant

    def __str__(self) -> str:
        return f"{_inside(self.operand)} LIKE {self.pattern}"


@dataclass(frozen=True, slots=True)
class In:
    """Whether a value equals one of several others."""

    operand: "Expression"
    elements: tuple["Expression", ...]

    def __str__(self) -> str:
        return f"{_inside(self.operand)} IN ({', '.join(map(str, self.elements))})"


@dataclass(frozen=True, slots=True)
class Equal:
    """Whether two values are equal, the left one cast to the right one's type."""

    left: "Expression"
    right: "Expression"

    def __str__(self) -> str:
        return f"{_inside(self.left)} = {_inside(self.right)}"


@dataclass(frozen=True, slots=True)
class _BinaryOperation:
    """Two values with an operator between them."""

    operator: str
    left: "Expression"
    right: "Expression"

    def __str__(self) -> str:
        return f"{_inside(self.left)} {self.operator} {_inside(self.right)}"


class Ordered(_BinaryOperation):
    """Whether two Integers are in an order: `<`, `<=`, `>` or `>=`."""

    __slots__ = ()


class Arithmetic(_BinaryOperation):
    """Two Integers joined by `+ - * / %`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Logic:
    """Two or more Booleans joined by one operator, from left to right."""

    operator: Literal["AND", "OR", "XOR"]
    operands: tuple["Expression", ...]

    def __str__(self) -> str:
        return f" {self.operator} ".join(map(_inside, self.operands))


Expression: TypeAlias = (
    Constant
    | Attribute
    | Exists
    | Call
    | Not
    | Negative
    | Like
    | In
    | Equal
    | Ordered
    | Arithmetic
    | Logic
)

_BARE: Final = (Constant, Attribute, Exists, Call)


def _inside(expression: Expression) -> str:
    """Returns the text of a part, in parentheses if it would be ambiguous."""
    return str(expression) if isinstance(expression, _BARE) else f"({expression})"


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
