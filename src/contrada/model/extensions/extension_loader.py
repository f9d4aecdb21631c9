"""The loader of type extensions, by name or from installed packages.

A name is `module:Class`, as for `--extension`; the class must be an `ExtendedType` without
arguments. A package offers extensions as entry points of the group `contrada.model.extensions`; the
commands that parse filters load them at their start. Loading runs code of the module: only load
trusted ones.

Source: CU-CS-946-03 §5 and §10 (the parameter -extension).
"""

from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from contrada.errors import ExtensionError
from contrada.model.extensions.extended_type import ExtendedType

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINTS: Final = "contrada.extensions"
"""The group of entry points for extensions of packages."""


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
    """Loads every extension of installed packages, sorted by name.

    Raises ExtensionError as `load`, at the first failure, with the entry point.
    """
    from importlib.metadata import entry_points  # it loads a parser of mails: only if needed

    points = {point.value: point for point in entry_points(group=ENTRY_POINTS)}
    return tuple(_load_entry_point(points[name]) for name in sorted(points))


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


_loaded: Final[dict[str, None]] = {}


def _load_entry_point(point: "EntryPoint") -> ExtendedType:
    try:
        return load(point.value)
    except ExtensionError as error:
        brought_by = f"entry point {point.name!r}"
        if point.dist is not None:
            brought_by += f" of the package {point.dist.name}"
        raise ExtensionError(point.value, f"{error.reason} ({brought_by})") from error


def _shown(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
