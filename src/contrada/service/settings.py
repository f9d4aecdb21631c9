"""Settings in TOML files, checked against a type. Errors name file, key, value, and expectation.

network.toml: neighbours[0].cost: found 'high', expected int
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Final, TypeVar, get_type_hints

import msgspec
from msgspec import inspect

from contrada.errors import InputError, shortened
from contrada.model.domains.values import is_number

T = TypeVar("T")

_TOML_PLACE: Final = re.compile(r"^(.*) \(at line (\d+), column (\d+)\)$", re.DOTALL)
_TOML_EXPECTED: Final = {
    "Invalid value": ": expected text in quotes, a number, true, false, a time, […] or {…}",
    "Invalid statement": ": expected a key and a value, as key = 1, or a table, as [name]",
}
_STEP: Final = re.compile(r"\.([^.\[]+)|\[(\d+)\]")
_EXPECTED: Final = re.compile(r"Expected (.*?)(, got .*)?$")


def read_text(path: Path) -> str:
    """The text of a file. Raises InputError if it cannot be read, or is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(str(path), f"byte {error.start} is not UTF-8") from None
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror or error}") from None


def read_bytes(path: Path) -> bytes:
    """The bytes of a file. Raises InputError if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror or error}") from None


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file. Raises InputError, with line and column."""
    try:
        return tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        place = _TOML_PLACE.match(str(error))
        if place is None:
            raise InputError(str(path), str(error)) from None
        reason, line, column = place.groups()
        # Without the found value: it may be a secret.
        reason += _TOML_EXPECTED.get(reason, "")
        raise InputError(str(path), reason, int(line), int(column)) from None


def checked(source: str, found: Any, kind: type[T]) -> T:
    """A value, converted to a type of msgspec. Raises InputError; `source` names its place."""
    try:
        return msgspec.convert(found, kind)
    except msgspec.ValidationError as error:
        reason, _, place = str(error).partition(" - at `$")
        raise InputError(source, _explained(reason, place.rstrip("`"), found, kind)) from None


def _explained(reason: str, place: str, found: Any, kind: type) -> str:
    info = inspect.type_info(kind)
    for name, number in _STEP.findall(place):
        found = found[int(number) if number else name]
        info = _inside(info, name)
    at = f"{place.lstrip('.')}: " if place else ""
    if "field `" in reason:
        key = reason.split("`")[1]
        if "missing" in reason:
            return f"{at}the key {key} is missing"
        return at + _unknown_key(key, [each.encode_name for each in _struct(info).fields])
    shown = shortened(repr(found), 80)
    if isinstance(info, inspect.LiteralType | inspect.EnumType):
        values = info.values if isinstance(info, inspect.LiteralType) else [*info.cls]
        return f"{at}found {shown}, expected one of: {', '.join(map(str, values))}"
    expected = _EXPECTED.sub(r"expected \1", reason).replace("`", "").replace("object", "table")
    return f"{at}found {shown}, {expected}"


def _inside(info: inspect.Type, name: str) -> inspect.Type:
    """The type below a key, or in a list."""
    if name:
        return next(each.type for each in _struct(info).fields if each.encode_name == name)
    lists = (each for each in _members(info) if isinstance(each, inspect.ListType))
    return next(lists).item_type


def _struct(info: inspect.Type) -> inspect.StructType:
    return next(each for each in _members(info) if isinstance(each, inspect.StructType))


def _members(info: inspect.Type) -> tuple[inspect.Type, ...]:
    return info.types if isinstance(info, inspect.UnionType) else (info,)


def sections_of(
    types: Mapping[str, type],
    known: Iterable[str],
    found: Mapping[str, Any],
    environ: Mapping[str, str],
    prefix: str,
    source: str,
) -> dict[str, Any]:
    """Dataclasses of numbers by section, from a table of tables and from the environment.

    `types` has the class of each section that occurs, `known` names all sections. The variable
    `{prefix}{SECTION}_{FIELD}` wins over the table. Raises InputError as `checked`.
    """
    tables: dict[str, dict[str, Any]] = {}
    for name, table in found.items():
        _check_key(source, name, known)
        if not isinstance(table, Mapping):
            raise InputError(source, f"{name}: found {table!r}, expected a table")
        tables[name] = dict(table)
    for variable, text in environ.items():
        if variable.startswith(prefix):
            key = variable.removeprefix(prefix).lower()
            section = next((each for each in types if key.startswith(f"{each}_")), key)
            _check_key(variable, section, known)
            name = key.removeprefix(f"{section}_")
            _check_key(variable, name, [each.name for each in fields(types[section])])
            tables.setdefault(section, {})[name] = _number(variable, text)
    return {name: _filled(types[name], table, f"{source}.{name}") for name, table in tables.items()}


def _filled(kind: type[T], table: Mapping[str, Any], source: str) -> T:
    """A dataclass of numbers, and of such dataclasses."""
    types = get_type_hints(kind)
    values: dict[str, Any] = {}
    for name, value in table.items():
        _check_key(source, name, types)
        expected = types[name]
        if is_dataclass(expected):
            if not isinstance(value, Mapping):
                raise InputError(source, f"{name}: found {value!r}, expected a table")
            value = _filled(expected, value, f"{source}.{name}")  # type: ignore[arg-type]
        elif not is_number(value) or value < 0:
            raise InputError(source, f"{name}: found {value!r}, expected a number from 0")
        elif expected is int and not isinstance(value, int):
            raise InputError(source, f"{name}: found {value!r}, expected a whole number")
        values[name] = value
    return kind(**values)


def _check_key(source: str, name: str, known: Iterable[str]) -> None:
    keys = [*known]
    if name not in keys:
        raise InputError(source, _unknown_key(name, keys))


def _unknown_key(name: str, keys: list[str]) -> str:
    """Returns the reason against a key, with the known ones and those of similar names."""
    from contrada.model.algebra.match_explanation import similar_names

    near = " or ".join(similar_names(name, keys))
    meant = f" (did you mean {near}?)" if near else ""
    return f"found the key {name}{meant}, expected one of: {', '.join(keys)}"


def _number(source: str, text: str) -> int | float:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    raise InputError(source, f"found {text!r}, expected a number")
