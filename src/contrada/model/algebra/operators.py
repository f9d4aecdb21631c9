"""`OperatorView`: every operator, built in or registered, behind the paper's one interface.

The algebra works on value sets; this is for programs that work with operators: names, indices and
the relations `apply`, `covers` and `intersects`. The last is this project's own (the paper has it
only of filters as values).

Source: CU-CS-946-03 §4 and figure 2 (name, index, apply, covers); CU-CS-948-03 §6 and table 2.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

from contrada.errors import UnknownOperatorError
from contrada.model.algebra import sets
from contrada.model.algebra.value_set import ValueSet
from contrada.model.domains.values import Value, key_of
from contrada.model.languages.atoms import registry

Constants: TypeAlias = Value | tuple[Value, ...]
"""An operator's constant; a tuple for none or several."""


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


_INTERVALS: Final = tuple(name for name in sets.OPERATORS if registry.find(name) is None)
"""Built-in operators whose sets are intervals; the others are in the registry."""


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
