"""`Constraint`: an attribute's name, an operator, its constants.

Filters hold value sets; this is the papers' φ, for programs that work with triples.

Source: PODC 2000 §2 (attribute constraint); CU-CS-946-03 §2 (triple).
"""

from dataclasses import dataclass

from contrada.errors import InvalidFilterError, InvalidValueError
from contrada.model.algebra.sets import of_operator
from contrada.model.algebra.value_set import ValueSet
from contrada.model.domains.values import Value, check_name, key_of


@dataclass(frozen=True, slots=True, init=False)
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
            value_set = of_operator(operator, constants)
        except InvalidFilterError as error:
            raise InvalidFilterError(error.operator, error.constants, error.reason, name) from None
        set_ = object.__setattr__
        set_(self, "name", name)
        set_(self, "operator", operator)
        set_(self, "constants", constants)
        set_(self, "value_set", value_set)

    def matches(self, name: str, value: Value) -> bool:
        """φ ⊏ α: whether the attribute has this name and a value that satisfies the operator.

        Source: PODC 2000 §2.
        """
        if name != self.name:
            return False
        try:
            return self.value_set.holds(key_of(value))
        except InvalidValueError as error:
            raise InvalidFilterError(self.operator, (value,), error.reason, name) from None

    def covers(self, other: "Constraint") -> bool:
        """Whether every value that satisfies the other satisfies this one.

        Source: CU-CS-946-03 §3; CU-CS-948-03 equation 5.
        """
        return self.name == other.name and self.value_set.issuperset(other.value_set)

    def intersects(self, other: "Constraint") -> bool:
        """Whether some value satisfies both. Constraints on different attributes always do.

        Source: CU-CS-946-03 §7.3; CU-CS-948-03 table 2.
        """
        return self.name != other.name or self.value_set.meets(other.value_set)
