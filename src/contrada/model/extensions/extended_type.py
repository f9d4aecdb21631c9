"""`ExtendedType` and `ExtendedOperator`: the two parts of a type extension.

An extension adds operators, not types of values: an operator takes text (bytes) and parses its own
type from it. To write one, subclass `ExtendedOperator` for each operator (its docstring lists the
optional methods) and `ExtendedType` for the group, then load the type by its name (see
`extension_loader`) or call `define`.

Source: CU-CS-946-03 §4, §5, figures 1 and 2.
"""

from collections.abc import Sequence

from contrada.errors import ExtensionError
from contrada.model.languages.atoms import Operator, registry


class ExtendedOperator(Operator):
    """An operator of an extension: name, index, check, apply, automaton, covers, intersects.

    `type` is the type that defined it. Source: CU-CS-946-03 figure 2 (ExtendedOp).
    """

    type: "ExtendedType | None" = None


class ExtendedType:
    """A named set of operators. Subclass it; set `name`, give `operators`.

    Source: CU-CS-946-03 figure 1 (ExtendedType).
    """

    name: str = ""

    def operators(self) -> Sequence[ExtendedOperator]:
        """Returns the operators of the type."""
        raise NotImplementedError(f"extended type {self.name!r} gives no operators")

    def define(self) -> None:
        """Registers the operators, all or none. Doing it again does nothing.

        Raises ExtensionError with the reason.
        """
        operators = self.operators()
        for operator in operators:
            if not isinstance(operator, ExtendedOperator):
                raise ExtensionError(self.name, f"{operator!r} is not an ExtendedOperator")
            operator.type = self
        registry.register(*operators)
