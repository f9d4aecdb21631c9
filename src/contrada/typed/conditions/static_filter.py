"""Static filters: conditions compiled into functions of Python.

Nothing of a condition is looked up when an obvent comes: its methods are called and its constants
compared as if a programmer had written that. Conditions stand in chunks, a function each, so that
one that comes or goes has only its chunk compiled anew.

What several conditions ask of every obvent is evaluated once in a chunk, before them: there the
invocation tree is part of the function. What they may not need, since `&` and `|` stop early, stays
where it is asked.

Source: EPFL 2503 §4.5.4 (enforcing static filters; the combination of both was left open there).
"""

import ast
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Final, NoReturn

from contrada.model.languages.atoms import failures
from contrada.typed.conditions.accessors import NO_VALUE, WHOLE, Accessor, Stage
from contrada.typed.conditions.condition_groups import ConditionGroup
from contrada.typed.conditions.condition_source import ConditionSource, Expressed, compiled
from contrada.typed.conditions.conditions import FAILURE
from contrada.typed.conditions.invocation_tree import InvocationTree

CHUNK_CONDITIONS_MAX: Final = 256
"""Conditions in one function: what is compiled anew at once, some 30 milliseconds. Beyond it:
another function."""

COMPILE_AFTER: Final = 100
"""Obvents for which the conditions of a changed chunk are evaluated by an invocation tree, which
takes about as long as to compile them. After these: they are compiled."""

Matching = Callable[[Any], list[Any]]


class StaticForm:
    """Groups of equal conditions in compiled chunks. `shares` is False for static filters alone."""

    def __init__(self, *, shares: bool = True) -> None:
        self.chunks: list[Chunk] = []
        self._shares = shares
        self._of: dict[Hashable, Chunk] = {}

    def __len__(self) -> int:
        return len(self._of)

    def __contains__(self, group: ConditionGroup) -> bool:
        return group.key in self._of

    def put(self, group: ConditionGroup) -> None:
        """Adds a group that is not here."""
        chunk = self.chunks[-1] if self.chunks else None
        if chunk is None or len(chunk.groups) >= CHUNK_CONDITIONS_MAX:
            chunk = Chunk(shares=self._shares)
            self.chunks.append(chunk)
        chunk.put(group)
        self._of[group.key] = chunk

    def drop(self, group: ConditionGroup) -> None:
        """Takes a group away, if it is here."""
        chunk = self._of.pop(group.key, None)
        if chunk is not None:
            chunk.drop(group)
            if not chunk.groups:
                self.chunks.remove(chunk)

    def change(self, group: ConditionGroup) -> None:
        """The keys of a group have changed, if it is here."""
        chunk = self._of.get(group.key)
        if chunk is not None:
            chunk.change(group)

    def ask(self, obvent: Any) -> list[Any]:
        """The keys that an obvent matches. A chunk that was asked often enough is compiled, one at
        a time.
        """
        found: list[Any] = []
        is_due = True
        for chunk in self.chunks:
            if is_due and chunk.is_due:
                chunk.compile()
                is_due = False
            found += chunk.ask(obvent)
        return found

    @property
    def is_compiled(self) -> bool:
        """Whether all chunks are."""
        return all(chunk.function is not None for chunk in self.chunks)

    def compile(self) -> None:
        """Compiles all chunks that are not."""
        for chunk in self.chunks:
            chunk.compile()

    def compiled(self) -> Matching:
        """What gives the keys that an obvent matches, as long as nothing changes."""
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
    """Some groups, and the function compiled from them; None if they have changed since."""

    def __init__(self, *, shares: bool) -> None:
        self.groups: dict[Hashable, ConditionGroup] = {}
        self.function: Matching | None = None
        self._shares = shares
        self._tree = InvocationTree()
        self._asked = 0
        self._alone: set[Hashable] = set()
        """Groups whose only key stands in the function."""

    def put(self, group: ConditionGroup) -> None:
        """Adds a group."""
        self.groups[group.key] = group
        self._tree.put(group)
        self._changed()

    def drop(self, group: ConditionGroup) -> None:
        """Takes a group away."""
        del self.groups[group.key]
        self._tree.drop(group)
        self._changed()

    def change(self, group: ConditionGroup) -> None:
        """The keys of a group changed."""
        if self.function is not None and group.key in self._alone:
            self._changed()

    def _changed(self) -> None:
        self.function, self._asked = None, 0

    def ask(self, obvent: Any) -> list[Any]:
        """The keys of the groups that an obvent matches."""
        if self.function is not None:
            return self.function(obvent)
        self._asked += 1
        return self._tree.matching(obvent)

    @property
    def is_due(self) -> bool:
        """Whether the chunk was evaluated so often that compiling it pays."""
        return self.function is None and self._asked >= COMPILE_AFTER

    def compile(self) -> None:
        """Makes the function, where it is not there."""
        if self.function is None:
            groups = list(self.groups.values())
            self._alone = {each.key for each in groups if len(each.keys) == 1}
            self.function = static_function(groups, shares=self._shares)


def static_function(groups: Iterable[ConditionGroup], *, shares: bool = True) -> Matching:
    """One function for conditions: of an obvent, it gives a list of the keys that it matches.

    Cost: some 60 microseconds a condition.
    """
    groups = list(groups)
    written = _Shared(groups) if shares else _Alone(literal=True)
    body: list[ast.stmt] = [
        *ast.parse("found = []\nadd = found.append").body,
        *written.statements(),
    ]
    for number, group in enumerate(groups):
        body.append(_question(written, group, number))
    body += ast.parse("return found").body
    written.names["failed"] = lambda: failures.add(FAILURE)
    return compiled("matching", body, written.names)


def _question(written: "_Alone", group: ConditionGroup, number: int) -> ast.stmt:
    """`if …: add(key)`; what raises does not match."""
    test = group.condition.expression(written)
    if len(group.keys) == 1:
        name, take = f"k{number}", ast.parse(f"add(k{number})").body
        written.names[name] = group.keys[0]
    else:
        name, take = f"k{number}", ast.parse(f"found += k{number}").body
        written.names[name] = group.keys
    return _guarded([ast.If(test, take, [])], ast.parse("failed()").body)


def _guarded(body: list[ast.stmt], otherwise: list[ast.stmt], name: str | None = None) -> ast.Try:
    handler = ast.ExceptHandler(ast.Name("Exception", ast.Load()), name, otherwise)
    return ast.Try(body, [handler], [], [])


class _Alone(ConditionSource):
    """Each condition evaluates all that it asks for."""

    def statements(self) -> Iterator[ast.stmt]:
        """What stands before the conditions."""
        return iter(())


class _Shared(_Alone):
    """What several conditions ask of every obvent is a variable."""

    def __init__(self, groups: list[ConditionGroup]) -> None:
        super().__init__(literal=True)
        self.names["Raised"] = Raised
        uses: Counter[Hashable] = Counter()
        sure: dict[Hashable, Accessor] = {}
        for group in groups:
            asked = {each.key: each for it in group.condition.accessors() for each in _within(it)}
            uses.update(asked.keys())
            for it in group.condition.surely():
                sure.update({each.key: each for each in _within(it)})
        self._hoisted = {key: each for key, each in sure.items() if uses[key] > 1}
        self._variables: dict[Hashable, str] = {}

    def statements(self) -> Iterator[ast.stmt]:
        """The variables, each after those of its operands."""
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

    def value(self, of: Expressed, *, looked_into: bool = True) -> ast.expr:
        """A variable, or the expression."""
        name = self._variables.get(of.key)
        if name is None:
            return of.expression(self)
        return _name(name) if looked_into else self.call(present, _name(name))


def _within(accessor: Accessor) -> Iterator[Accessor]:
    """An accessor, and all that it takes its values from."""
    if accessor is not WHOLE:
        yield accessor
        for each in accessor.operands():
            yield from _within(each)


def _name(name: str) -> ast.expr:
    return ast.Name(name, ast.Load())


class Raised:
    """Stands for a value whose accessor raised: whatever is asked of it raises the same."""

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error = error.with_traceback(None)

    def _again(self, *_: object) -> NoReturn:
        raise self.error.with_traceback(None)

    __getattr__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = _again
    __hash__ = None  # type: ignore[assignment]


def present(value: Any) -> Any:
    """The value, where it is one. Raises what its accessor raised."""
    if type(value) is Raised:
        raise value.error.with_traceback(None)
    return value
