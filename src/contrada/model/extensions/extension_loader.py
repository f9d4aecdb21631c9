"""Loading type extensions by name, or those that installed packages bring.

A name is `module:Class`, as for `--extension`; the class must be an `ExtendedType` that is
made without arguments. A package brings extensions as entry points of the group
`contrada.model.extensions`; the commands that read filters load them when they start. Loading runs
code of the module: only load what you trust.

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
"""The group of entry points that packages bring extensions in."""


def load(name: str) -> ExtendedType:
    """Loads the extension `module:Class` and registers its operators.

    Loading it again does nothing more. Raises ExtensionError that names what is wrong: the
    module, the class, the constructor, or an operator.
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
    """Loads every extension that installed packages bring, by name in order.

    Raises ExtensionError as `load`, at the first that fails; it tells the entry point too.
    """
    from importlib.metadata import entry_points  # loads what reads mails: only when asked for

    points = {point.value: point for point in entry_points(group=ENTRY_POINTS)}
    return tuple(_load_entry_point(points[name]) for name in sorted(points))


def loaded() -> tuple[str, ...]:
    """The names of what was loaded here, in order, so that other processes can load the same."""
    return tuple(_loaded)


def object_named(name: str) -> object:
    """What `module:Name` names. Raises ExtensionError, whatever the module itself raises."""
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
