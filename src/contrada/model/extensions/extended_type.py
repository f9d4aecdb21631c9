"""What a type extension is made of: a type object and its operators.

An extension adds operators, not types of values: an operator takes text (bytes) and reads its
own type out of it. To write one, subclass `ExtendedOperator` for each operator (its docstring
says which methods may stay away) and `ExtendedType` for what binds them, then load the type by
its name (see `loading`) or call `define`.

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
    """A named set of operators that belong together. Subclass it; set `name`, give `operators`.

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
