"""`Constraint` and `OperatorView`: the papers' interfaces to single constraints and operators.

The algebra works on value sets; this is for programs that work with triples of an attribute, an
operator and a constant, or with operators. `intersects` of operators is this project's own.

Source: PODC 2000 §2 (attribute constraint); CU-CS-946-03 §2 (triple), §4 and
figure 2 (name, index, apply, covers); CU-CS-948-03 §6 and table 2.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

from contrada.errors import InvalidFilterError, InvalidValueError, UnknownOperatorError
from contrada.model.algebra import sets
from contrada.model.algebra.value_set import ValueSet
from contrada.model.domains.values import Value, check_name, key_of
from contrada.model.languages.atoms import registry

Constants: TypeAlias = Value | tuple[Value, ...]
"""An operator's constant; a tuple for none or several."""

_INTERVALS: Final = tuple(name for name in sets.OPERATORS if registry.find(name) is None)
"""Built-in operators whose sets are intervals; the others are in the registry."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """A constraint on one attribute: `Constraint("price", "<", 100)`.

    Raises InvalidNameError, UnknownOperatorError, or InvalidFilterError with the operator and the
    constants.
    """

    name: str
    operator: str
    constants: tuple[Value, ...]
    value_set: ValueSet

    def __init__(self, name: str, operator: str, *constants: Value) -> None:
        check_name(name)
        try:
            value_set = sets.of_operator(operator, constants)
        except InvalidFilterError as error:
            raise InvalidFilterError(error.operator, error.constants, error.reason, name) from None
        set_ = object.__setattr__
        set_(self, "name", name)
        set_(self, "operator", operator)
        set_(self, "constants", constants)
        set_(self, "value_set", value_set)

    def matches(self, name: str, value: Value) -> bool:
        """φ ⊏ α: whether an attribute satisfies the constraint. Source: PODC 2000 §2."""
        if name != self.name:
            return False
        try:
            return self.value_set.holds(key_of(value))
        except InvalidValueError as error:
            raise InvalidFilterError(self.operator, (value,), error.reason, name) from None

    def covers(self, other: "Constraint") -> bool:
        """Whether the other's values satisfy this. Source: CU-CS-946-03 §3; CU-CS-948-03 eq. 5."""
        return self.name == other.name and self.value_set.issuperset(other.value_set)

    def intersects(self, other: "Constraint") -> bool:
        """Whether some value satisfies both. Constraints on different attributes always do.

        Source: CU-CS-946-03 §7.3; CU-CS-948-03 table 2.
        """
        return self.name != other.name or self.value_set.meets(other.value_set)


@dataclass(frozen=True, slots=True)
class OperatorView:
    """One operator: `operator("<").covers(5, "=", 3)`.

    `index` is unique in this process and never changes.

    All methods raise InvalidFilterError for a constant that does not fit its operator; `apply`
    raises InvalidValueError for a value of no domain.
    """

    name: str
    index: int

    def apply(self, value: Value, constant: Constants = ()) -> bool:
        """Whether a notification's value satisfies the operator with a filter's constant."""
        return self._set(constant).holds(key_of(value))

    def covers(self, constant: Constants, other: str, other_constant: Constants = ()) -> bool:
        """Whether every value that satisfies the other operator satisfies this one."""
        return self._set(constant).issuperset(operator(other)._set(other_constant))

    def intersects(self, constant: Constants, other: str, other_constant: Constants = ()) -> bool:
        """Whether some value satisfies both."""
        return self._set(constant).meets(operator(other)._set(other_constant))

    def _set(self, constant: Constants) -> ValueSet:
        constants = constant if isinstance(constant, tuple) else (constant,)
        return sets.of_operator(self.name, constants)


def operators() -> tuple[OperatorView, ...]:
    """Returns all operators known here, in the order of their indices."""
    return tuple(OperatorView(name, i) for i, name in enumerate((*_INTERVALS, *registry.names())))


def operator(name_or_index: str | int) -> OperatorView:
    """Returns the operator of a name, a synonym or an index. Raises UnknownOperatorError."""
    known = operators()
    if isinstance(name_or_index, int):
        if 0 <= name_or_index < len(known):
            return known[name_or_index]
    else:
        name = sets.SYNONYMS.get(name_or_index, name_or_index)
        for view in known:
            if view.name == name:
                return view
    raise UnknownOperatorError(str(name_or_index), tuple(view.name for view in known))
