"""`ExtendedType` and `ExtendedOperator`: the two parts of a type extension; and their loader.

An extension adds operators, not types of values: an operator takes text (bytes) and parses its own
type from it. To write one, subclass `ExtendedOperator` for each operator (its docstring lists the
optional methods) and `ExtendedType` for the group, then `load` the type by its name or call
`define`. Loading runs code of the module: only load trusted ones.

A name is `module:Class`, as for `--extension`. A package offers extensions as entry points; the
commands that parse filters load them at their start.

Source: CU-CS-946-03 §4, §5, figures 1 and 2, and §10 (the parameter -extension).
"""

from collections.abc import Sequence
from importlib import import_module
from operator import attrgetter
from typing import Final

from contrada.errors import ExtensionError
from contrada.model.languages.atoms import Operator, registry

ENTRY_POINTS: Final = "contrada.extensions"  # The group of entry points for extensions of packages
_loaded: Final[dict[str, None]] = {}


class ExtendedOperator(Operator):
    """An operator of an extension: name, index, check, apply, automaton, covers, intersects.

    `type` is the type that defined it. Source: CU-CS-946-03 figure 2 (ExtendedOp).
    """

    type: "ExtendedType | None" = None


class ExtendedType:
    """A named set of operators, to subclass. Source: CU-CS-946-03 figure 1 (ExtendedType)."""

    name: str = ""

    def operators(self) -> Sequence[ExtendedOperator]:
        """Returns the operators of the type."""
        raise NotImplementedError(f"extended type {self.name!r} gives no operators")

    def define(self) -> None:
        """Registers the operators, all or none; again does nothing. Raises ExtensionError."""
        operators = self.operators()
        for operator in operators:
            if not isinstance(operator, ExtendedOperator):
                raise ExtensionError(self.name, f"{operator!r} is not an ExtendedOperator")
            operator.type = self
        registry.register(*operators)


def load(name: str) -> ExtendedType:
    """Loads the extension `module:Class` and registers its operators.

    Loading it again has no effect. Raises ExtensionError that names the faulty part: the module,
    the class, the constructor, or an operator.
    """
    found = object_named(name)
    if not (isinstance(found, type) and issubclass(found, ExtendedType)):
        class_name = name.partition(":")[2]
        raise ExtensionError(name, f"{class_name!r} is not a subclass of ExtendedType")
    try:
        extended_type = found()
    except Exception as error:
        raise ExtensionError(name, f"its constructor failed: {_shown(error)}") from error
    try:
        extended_type.define()
    except ExtensionError:
        raise
    except Exception as error:
        raise ExtensionError(name, f"its operators cannot be had: {_shown(error)}") from error
    _loaded[name] = None
    return extended_type


def load_entry_points() -> tuple[ExtendedType, ...]:
    """Loads the extensions of installed packages, sorted. Raises as `load`, at the first."""
    from importlib.metadata import entry_points  # it loads a parser of mails: only if needed

    points = {point.value: point for point in entry_points(group=ENTRY_POINTS)}
    found = []
    for name, point in sorted(points.items()):
        try:
            found.append(load(name))
        except ExtensionError as error:
            brought_by = f"entry point {point.name!r}"
            if point.dist is not None:
                brought_by += f" of the package {point.dist.name}"
            raise ExtensionError(name, f"{error.reason} ({brought_by})") from error
    return tuple(found)


def loaded() -> tuple[str, ...]:
    """Returns the loaded names in order, so that other processes can load the same."""
    return tuple(_loaded)


def object_named(name: str) -> object:
    """Returns the object `module:Name`. Raises ExtensionError for any error of the module."""
    module_name, colon, class_name = name.partition(":")
    if not (colon and module_name and class_name):
        raise ExtensionError(name, "expected module:Class")
    try:
        module = import_module(module_name)
    except Exception as error:
        reason = f"module {module_name!r} cannot be imported: {_shown(error)}"
        raise ExtensionError(name, reason) from error
    try:
        found: object = attrgetter(class_name)(module)
    except AttributeError:
        reason = f"module {module_name!r} has no class {class_name!r}"
        raise ExtensionError(name, reason) from None
    return found


def _shown(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
