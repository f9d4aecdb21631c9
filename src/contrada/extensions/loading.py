"""Loading type extensions by name, or those that installed packages bring.

A name is `module:Class`, as for `--extension`; the class must be an `ExtendedType` that is
made without arguments. A package brings extensions as entry points of the group
`contrada.extensions`. Loading runs code of the module: only load what you trust.

Source: CU-CS-946-03 §5 and §10 (the parameter -extension).
"""

from importlib import import_module
from importlib.metadata import entry_points
from operator import attrgetter
from typing import Final

from contrada.errors import ExtensionError
from contrada.extensions.extendedtype import ExtendedType

ENTRY_POINTS: Final = "contrada.extensions"
"""The group of entry points that packages bring extensions in."""


def load(name: str) -> ExtendedType:
    """Loads the extension `module:Class` and registers its operators.

    Loading it again does nothing more. Raises ExtensionError that names what is wrong: the
    module, the class, the constructor, or an operator.
    """
    extended_type = _made(name, _found(name))
    try:
        extended_type.define()
    except ExtensionError:
        raise
    except Exception as error:
        raise ExtensionError(name, f"its operators cannot be had: {_shown(error)}") from error
    return extended_type


def load_entry_points() -> tuple[ExtendedType, ...]:
    """Loads every extension that installed packages bring, by name in order.

    Raises ExtensionError as `load`, at the first that fails.
    """
    names = sorted({point.value for point in entry_points(group=ENTRY_POINTS)})
    return tuple(load(name) for name in names)


def _found(name: str) -> type[ExtendedType]:
    module_name, colon, class_name = name.partition(":")
    if not (colon and module_name and class_name):
        raise ExtensionError(name, "expected module:Class")
    try:
        module = import_module(module_name)
    except Exception as error:
        reason = f"module {module_name!r} cannot be imported: {_shown(error)}"
        raise ExtensionError(name, reason) from error
    try:
        found = attrgetter(class_name)(module)
    except AttributeError:
        reason = f"module {module_name!r} has no class {class_name!r}"
        raise ExtensionError(name, reason) from None
    if not (isinstance(found, type) and issubclass(found, ExtendedType)):
        raise ExtensionError(name, f"{class_name!r} is not a subclass of ExtendedType")
    return found


def _made(name: str, of: type[ExtendedType]) -> ExtendedType:
    try:
        return of()
    except Exception as error:
        raise ExtensionError(name, f"its constructor failed: {_shown(error)}") from error


def _shown(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
