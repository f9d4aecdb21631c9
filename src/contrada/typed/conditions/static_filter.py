"""`StaticForm`: static filters, conditions compiled into functions of Python.

Matching looks up nothing of a condition: its methods are called and its constants compared as in
code by a programmer. Conditions are in chunks of one function each, so that a change recompiles one
chunk only.

An accessor that several conditions of a chunk evaluate for every obvent becomes a variable at the
start of the function: there the invocation tree is part of the static filter. Accessors that `&`
and `|` may skip are evaluated in their place.

Source: EPFL 2503 §4.5.4 (enforcing static filters; the combination of both is left open there).
"""

import ast
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Final, NoReturn

from contrada.model.languages.atoms import failures
from contrada.typed.conditions.accessors import NO_VALUE, WHOLE, Accessor, Stage
from contrada.typed.conditions.condition_source import ConditionSource, compile_function
from contrada.typed.conditions.conditions import FAILURE
from contrada.typed.conditions.invocation_tree import ConditionGroup, InvocationTree

CHUNK_CONDITIONS_MAX: Final = 256
"""Conditions in one function; compiling takes some 30 milliseconds. Beyond it: another function."""

COMPILE_AFTER: Final = 100
"""Obvents that a changed chunk's tree evaluates. Beyond it: compiling takes less, and is done."""

Matching = Callable[[Any], list[Any]]


class StaticForm:
    """Groups of equal conditions in compiled chunks."""

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self._of: dict[Hashable, Chunk] = {}

    def __len__(self) -> int:
        return len(self._of)

    def put(self, group: ConditionGroup) -> None:
        """Adds a group that is not here."""
        chunk = self.chunks[-1] if self.chunks else None
        if chunk is None or len(chunk.groups) >= CHUNK_CONDITIONS_MAX:
            chunk = Chunk()
            self.chunks.append(chunk)
        chunk.put(group)
        self._of[group.key] = chunk

    def drop(self, group: ConditionGroup) -> None:
        """Removes a group; no effect if it is not here."""
        chunk = self._of.pop(group.key, None)
        if chunk is not None:
            chunk.drop(group)
            if not chunk.groups:
                self.chunks.remove(chunk)

    def change(self, group: ConditionGroup) -> None:
        """Notes that the keys of a group have changed; no effect if it is not here."""
        chunk = self._of.get(group.key)
        if chunk is not None:
            chunk.change(group)

    def matching(self, obvent: Any) -> list[Any]:
        """Returns the keys that an obvent matches, and compiles at most one chunk that is due."""
        found: list[Any] = []
        is_due = True
        for chunk in self.chunks:
            if is_due and chunk.is_due:
                chunk.compile()
                is_due = False
            found += chunk.matching(obvent)
        return found

    @property
    def is_compiled(self) -> bool:
        """Whether all chunks are compiled."""
        return all(chunk.function is not None for chunk in self.chunks)

    def compile(self) -> None:
        """Compiles all chunks."""
        for chunk in self.chunks:
            chunk.compile()

    def function(self) -> Matching:
        """Compiles all chunks, and returns one function that is valid until the next change."""
        self.compile()
        functions = [chunk.function for chunk in self.chunks if chunk.function is not None]
        if len(functions) < 2:
            return functions[0] if functions else lambda obvent: []

        def matching(obvent: Any) -> list[Any]:
            found: list[Any] = []
            for each in functions:
                found += each(obvent)
            return found

        return matching


class Chunk:
    """Some groups, and the function compiled from them; None after a change."""

    def __init__(self) -> None:
        self.groups: dict[Hashable, ConditionGroup] = {}
        self.function: Matching | None = None
        self._tree = InvocationTree()
        self._uses = 0
        self._alone: set[Hashable] = set()
        """Groups with one key, which is in the function."""

    def put(self, group: ConditionGroup) -> None:
        """Adds a group."""
        self.groups[group.key] = group
        self._tree.put(group)
        self._invalidate()

    def drop(self, group: ConditionGroup) -> None:
        """Removes a group."""
        del self.groups[group.key]
        self._tree.drop(group)
        self._invalidate()

    def change(self, group: ConditionGroup) -> None:
        """Notes that the keys of a group have changed."""
        if self.function is not None and group.key in self._alone:
            self._invalidate()

    def _invalidate(self) -> None:
        self.function, self._uses = None, 0

    def matching(self, obvent: Any) -> list[Any]:
        """Returns the keys of the groups that an obvent matches."""
        if self.function is not None:
            return self.function(obvent)
        self._uses += 1
        return self._tree.matching(obvent)

    @property
    def is_due(self) -> bool:
        """Whether the chunk was evaluated often enough for compiling it to pay."""
        return self.function is None and self._uses >= COMPILE_AFTER

    def compile(self) -> None:
        """Compiles the function if there is none."""
        if self.function is None:
            groups = list(self.groups.values())
            self._alone = {each.key for each in groups if len(each.keys) == 1}
            self.function = static_function(groups)


def static_function(groups: Iterable[ConditionGroup]) -> Matching:
    """Returns a function from an obvent to its keys. Cost: some 60 microseconds a condition."""
    groups = list(groups)
    source = _SharedSource(groups)
    body: list[ast.stmt] = [*ast.parse("found = []\nadd = found.append").body, *source.statements()]
    for number, group in enumerate(groups):
        body.append(_test_statement(source, group, number))
    body += ast.parse("return found").body
    source.names["failed"] = lambda: failures.add(FAILURE)
    return compile_function("matching", body, source.names)


def _test_statement(source: "_SharedSource", group: ConditionGroup, number: int) -> ast.stmt:
    """`if …: add(key)`, in a `try`: a condition that raises does not match."""
    test, is_one = group.condition.expression(source), len(group.keys) == 1
    source.names[f"k{number}"] = group.keys[0] if is_one else group.keys
    take = ast.parse(f"add(k{number})" if is_one else f"found += k{number}").body
    return _guarded([ast.If(test, take, [])], ast.parse("failed()").body)


def _guarded(body: list[ast.stmt], otherwise: list[ast.stmt], name: str | None = None) -> ast.Try:
    handler = ast.ExceptHandler(ast.Name("Exception", ast.Load()), name, otherwise)
    return ast.Try(body, [handler], [], [])


class _SharedSource(ConditionSource):
    """The source of a function, with variables for accessors of several conditions."""

    def __init__(self, groups: list[ConditionGroup]) -> None:
        super().__init__(literal=True)
        self.names["Raised"] = RaisedValue
        uses: Counter[Hashable] = Counter()
        certain: dict[Hashable, Accessor] = {}
        for group in groups:
            read = {each.key: each for it in group.condition.accessors() for each in _parts(it)}
            uses.update(read.keys())
            for it in group.condition.certain_accessors():
                certain.update({each.key: each for each in _parts(it)})
        self._hoisted = {key: each for key, each in certain.items() if uses[key] > 1}
        self._variables: dict[Hashable, str] = {}

    def statements(self) -> Iterator[ast.stmt]:
        """The assignments of the variables, each after those of its operands."""
        for each in list(self._hoisted.values()):
            yield from self._assignments(each)

    def _assignments(self, accessor: Accessor) -> Iterator[ast.stmt]:
        key = accessor.key
        if key not in self._hoisted or key in self._variables:
            return
        for operand in accessor.operands():
            yield from self._assignments(operand)
        name = f"v{len(self._variables)}"
        default: ast.expr = ast.Call(_name("Raised"), [_name("error")], [])
        if isinstance(accessor, Stage) and accessor.default is not NO_VALUE:
            value, default = accessor.plain_expression(self), self.constant(accessor.default)
        else:
            value = accessor.expression(self)
        self._variables[key] = name
        otherwise: list[ast.stmt] = [ast.Assign([ast.Name(name, ast.Store())], default)]
        yield _guarded([ast.Assign([ast.Name(name, ast.Store())], value)], otherwise, "error")

    def value(self, of: Accessor, *, is_read: bool = True) -> ast.expr:
        name = self._variables.get(of.key)
        if name is None:
            return of.expression(self)
        return _name(name) if is_read else self.call(require_value, _name(name))


def _parts(accessor: Accessor) -> Iterator[Accessor]:
    if accessor is not WHOLE:
        yield accessor
        for each in accessor.operands():
            yield from _parts(each)


def _name(name: str) -> ast.expr:
    return ast.Name(name, ast.Load())


class RaisedValue:
    """Stands for the value of an accessor that raised: each use raises the same error."""

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error = error.with_traceback(None)

    def _raise(self, *_: object) -> NoReturn:
        # `error` may be a field of the value, too.
        error: Exception = object.__getattribute__(self, "error")
        raise error.with_traceback(None)

    __getattribute__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = _raise
    __hash__ = None  # type: ignore[assignment]


def require_value(value: Any) -> Any:
    """Returns a value. Raises the error of its accessor."""
    if type(value) is RaisedValue:
        RaisedValue._raise(value)
    return value
