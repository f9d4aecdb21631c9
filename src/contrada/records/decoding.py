"""Many JSON lines at once: msgspec decodes them, and only what is asked for is converted.

The meaning of a line is `contrada.records.objects`. Here only those lines are read that both
decoders take alike: objects of scalars, of lists of scalars and of such objects, integers of 64
bits. All other lines are *doubtful* and left to the plain reader; so are lines with a name that is
found twice or that no attribute can have, and with a text that is not of its declared type.

msgspec does not tell of a name that is found twice. But then there are more quotes in the line
than around the names and texts of what was decoded.
"""

import sys
from collections.abc import Callable, Iterable
from datetime import datetime
from operator import itemgetter
from typing import Annotated, Any, Final

import msgspec
import numpy as np

from contrada.errors import InvalidNameError
from contrada.model.algebra.notification import ATTRIBUTES_MAX, VALUES_MAX
from contrada.model.domains.values import INT_MAX, INT_MIN, check_user_name
from contrada.records.cells import CONVERTERS
from contrada.records.columns import MISSING, REFUSED, Column, ColumnBatch, converter, names_checked
from contrada.records.lines import LINE_CHARS_MAX, Block
from contrada.records.reading import Reading

LEVELS_MAX: Final = 8
"""Objects within objects of a line that is read together with others. Beyond it: it is read by
itself."""

SHAPES_KEPT_MAX: Final = 2**12
"""Sets of names of which is kept whether a record can have them. Beyond it: all are looked at
again."""

_Scalar = Annotated[int, msgspec.Meta(ge=INT_MIN, le=INT_MAX)] | float | bool | str | None


class Decoder:
    """Reads of JSON lines the attributes that are asked for, and those that can be bad."""

    def __init__(self, asked: Iterable[str], reading: Reading) -> None:
        content: Any = dict[str, _Scalar | list[_Scalar]]
        for _ in range(LEVELS_MAX - 1):
            content = dict[str, _Scalar | list[_Scalar] | content]
        self._decode = msgspec.json.Decoder(content).decode
        self._reading = reading
        self._wanted = {*asked, *names_checked(reading)}
        self._stamp = reading.time if reading.time not in reading.add else None
        self._texts = {
            name: converter(
                CONVERTERS[reading.types.get(name, "text")],
                reading.absent.__contains__,
                is_stamp=name == self._stamp,
            )
            for name in (self._wanted if reading.absent else self._wanted & reading.types.keys())
        }
        self._allowed: dict[tuple[str, ...], bool] = {}

    def read(self, block: Block) -> ColumnBatch:
        """The records of a block. Those with the same names stand together."""
        tables: dict[tuple[str, ...], _Table] = {}
        for position, line in enumerate(block.data.split(b"\n")[:-1]):
            found = self._attributes(line)
            if found is None:
                continue
            names = tuple(found)
            table = tables.get(names)
            if table is None:
                if not self._is_allowed(names):
                    continue
                table = tables[names] = _Table([name for name in names if name in self._wanted])
            table.positions.append(position)
            table.cells.extend(table.cells_of(found))
        lines = np.array([at for each in tables.values() for at in each.positions], dtype=np.int64)
        is_doubtful = np.ones(len(block), dtype=bool)
        is_doubtful[lines] = False
        columns = {}
        for name in self._wanted:
            values: list[Any] = []
            for table in tables.values():
                values += table.column(name)
            values = self._converted(name, values)
            if REFUSED in values:
                is_doubtful[lines[[value is REFUSED for value in values]]] = True
            columns[name] = Column(values)
        return ColumnBatch(is_doubtful, ~is_doubtful, lines, columns)

    def _attributes(self, line: bytes) -> dict[str, Any] | None:
        """The attributes of a line by their dotted names, None where it is doubtful."""
        try:
            found = content = self._decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None
        quotes = line.count(b'"')
        if b"\\" in line:
            quotes -= line.replace(b"\\\\", b"").count(b'\\"')
        if line.count(b"{") == 1 and b"[" not in line:
            texts = len(content) + list(map(type, content.values())).count(str)
        else:
            found = {}
            texts = _flatten(content, "", found)
        is_whole = quotes == 2 * texts and len(line) <= LINE_CHARS_MAX
        return found if is_whole else None

    def _is_allowed(self, names: tuple[str, ...]) -> bool:
        """Whether a record can have attributes of these names."""
        if len(self._allowed) == SHAPES_KEPT_MAX:
            self._allowed.clear()
        if names not in self._allowed:
            try:
                list(map(check_user_name, names))
                self._allowed[names] = len(names) + len(self._reading.add) <= ATTRIBUTES_MAX
            except InvalidNameError:
                self._allowed[names] = False
        return self._allowed[names]

    def _converted(self, name: str, values: list[Any]) -> list[Any]:
        """The values of an attribute as the source's options have them."""
        text_value = self._texts.get(name)
        if text_value is not None:
            values = [
                text_value(each) if type(each) is str else REFUSED if type(each) is list else each
                for each in values
            ]
        if name == self._stamp:
            values = [each if isinstance(each, datetime) else REFUSED for each in values]
        return values


class _Table:
    """What records of the same names hold of what is wanted, one after another in one list."""

    def __init__(self, names: list[str]) -> None:
        self.positions: list[int] = []
        self.cells: list[Any] = []
        self._names = names
        # For less than two names an itemgetter would not give a tuple.
        self.cells_of: Callable[[dict[str, Any]], Iterable[Any]] = (
            itemgetter(*names) if len(names) > 1 else lambda found: [found[name] for name in names]
        )

    def column(self, name: str) -> list[Any]:
        if name not in self._names:
            return [MISSING] * len(self.positions)
        return self.cells[self._names.index(name) :: len(self._names)]


def _flatten(content: dict[str, Any], prefix: str, found: dict[str, Any]) -> int:
    """Put the values of an object under their dotted names; say how many names and texts it holds.

    A negative number where a name is found twice or a list is too long for an attribute.
    """
    texts = len(content)
    for key, member in content.items():
        name = prefix + key
        if type(member) is dict:
            texts += _flatten(member, f"{name}.", found)
            continue
        if name in found or (type(member) is list and len(member) > VALUES_MAX):
            return -sys.maxsize
        if type(member) is list:
            texts += sum(type(each) is str for each in member)
        elif type(member) is str:
            texts += 1
        found[name] = MISSING if member == [] else member
    return texts
