"""`SlotReader`: converts named slots of XML and JSON to attributes.

Options for a plain name (`types`, `drop`, types of a schema) apply to all names generated from it.
XML texts without a type are inferred like cells; JSON texts stay texts.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from contrada.errors import ContradaError, InvalidNotificationError
from contrada.integrations.documents.document_schema import SchemaTypes
from contrada.integrations.documents.document_shape import DROPPED
from contrada.integrations.documents.naming_strategies import Named
from contrada.integrations.files.read_options import (
    NAMES_KEPT_MAX,
    Converter,
    ReadOptions,
    schema_value,
    untyped_value,
)
from contrada.model import Value


class SlotReader:
    """Converts slots to the values of attributes."""

    def __init__(self, options: ReadOptions, *, is_json: bool = False) -> None:
        """Raises InputError for a schema that is none."""
        self._options = options
        self._is_json = is_json
        self._types = None if options.schema is None else SchemaTypes(options.schema)
        self._converters: dict[tuple[str, str], Converter] = {}

    def of(self, names: Iterable[Named]) -> dict[str, Any]:
        """Returns the attributes. Raises InvalidNotificationError for a value not of its type."""
        options = self._options
        found: dict[str, list[Value]] = {}
        for name, slot in names:
            value = slot.value
            if isinstance(value, str) and (value in options.absent or not (value or self._is_json)):
                continue
            if self._is_dropped(name, slot.plain):
                continue
            name = options.rename.get(name, name)
            try:
                value = self._value(name, slot.plain, value)
            except ContradaError as error:
                raise InvalidNotificationError(name, value, str(error)) from None
            found.setdefault(name, []).append(value)
        return {name: each[0] if len(each) == 1 else each for name, each in found.items()}

    def final_attributes(self, found: Mapping[str, Any], names: Iterable[Named]) -> dict[str, Any]:
        """Returns the final attributes, with DROPPED for those that must not be published."""
        final_attributes: dict[str, Any] = {**found, **self._options.add}
        if self._options.drop:
            for name, slot in names:
                if self._is_dropped(name, slot.plain):
                    final_attributes[name] = DROPPED
        return final_attributes

    def _is_dropped(self, name: str, plain: str) -> bool:
        options = self._options
        return bool(options.drop) and (options.is_dropped(name) or options.is_dropped(plain))

    def _value(self, name: str, plain: str, value: Any) -> Value:
        if not isinstance(value, str):
            options = self._options
            typed = name if name in options.types else plain
            takes = type(value) in (int, float) and options.takes_numbers(typed)
            return options.typed(typed)(value) if takes else value
        return self.converter(name, plain)(value)

    def converter(self, name: str, plain: str) -> Converter:
        """Returns the converter of an attribute's texts, given its plain name."""
        key, options = (name, plain), self._options
        if (known := self._converters.get(key)) is not None:
            return known
        if len(self._converters) > NAMES_KEPT_MAX:
            self._converters.clear()
        kind = None if self._types is None else self._types.kind(plain)
        declared = next((each for each in key if each in options.types), None)
        convert: Converter = str if self._is_json else untyped_value
        if declared is not None:
            convert = options.typed(declared)
        elif kind is not None:
            convert = partial(schema_value, kind, zone=options.zone)
        self._converters[key] = convert
        return convert
