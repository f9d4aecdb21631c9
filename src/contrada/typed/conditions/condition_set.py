"""`ConditionSet`: many conditions on objects of one class, matched together.

A set matches in one of three forms, which give the same answers: an invocation *tree*; *static*
filters; or an index of filters, *indexed*, with static filters for the conditions that filters do
not express exactly. The first two are the thesis's.

Source: EPFL 2503 §4.5.4.
"""

from collections.abc import Callable, Hashable, Iterator
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar, get_args
from warnings import warn

from contrada.errors import InvalidObventError
from contrada.typed.conditions.accessors import class_name
from contrada.typed.conditions.conditions import Condition
from contrada.typed.conditions.indexed_conditions import IndexedForm
from contrada.typed.conditions.invocation_tree import ConditionGroup, InvocationTree
from contrada.typed.conditions.static_filter import StaticForm

K = TypeVar("K", bound=Hashable)

FormName: TypeAlias = Literal["tree", "static", "indexed"]

INDEXED_MIN: Final = 64
INDEXED_MIN_PER_ATTRIBUTE: Final = 25
"""A set without a given form uses its index when this holds INDEXED_MIN different conditions, and
INDEXED_MIN_PER_ATTRIBUTE more for each attribute that they read. Measured: there an index costs as
much as static filters do. Below it the fixed costs of the index are higher."""


class ConditionSet(Generic[K]):
    """Keys with their conditions, all on objects of a class.

    Without a class conditions are not checked and there is no index: the set matches any objects
    that have the members that its conditions read. `compiled` has no effect.

    Methods that conditions call must not change obvents; how often a method is called is
    unspecified. Used by one thread at a time.

    `matching(obvent)` returns the keys of the conditions that an obvent matches, in no order. The
    attribute changes with the conditions: do not keep the function.
    """

    matching: Callable[[Any], list[K]]

    def __init__(
        self,
        cls: type[Any] | None = None,
        *,
        form: FormName | None = None,
        compiled: bool | None = None,
    ) -> None:
        if form not in (None, *get_args(FormName)):
            expected = "expected 'tree', 'static', 'indexed' or None"
            raise InvalidObventError(class_name(cls), f"form = {form!r}: {expected}")
        if form == "indexed" and cls is None:
            raise InvalidObventError("any", "the indexed form needs a class, whose fields it reads")
        self._cls = cls
        self._given = form
        if compiled is not None:
            warn(
                "ConditionSet(compiled=…) has no effect any more", DeprecationWarning, stacklevel=2
            )
        self._of: dict[K, ConditionGroup] = {}
        self._groups: dict[Hashable, ConditionGroup] = {}
        self._tree = InvocationTree()
        # All conditions: the index cannot match objects with values that their fields do not have.
        self._static = StaticForm()
        self._index = None if form != "indexed" else self._new_index()
        self._rest = StaticForm()  # The conditions that are not in the index.
        self._choose()

    # --- keys ---------------------------------------------------------------------------------

    def add(self, key: K, condition: Condition) -> None:
        """Sets the condition of a key. Raises InvalidObventError.

        The condition is checked against the class first. Cost: some tens of microseconds. From
        INDEXED_MIN different conditions on it is that of a subscription, some tenths of a
        millisecond. The call that reaches this number lifts all conditions.
        """
        hash(key)
        if not isinstance(condition, Condition):
            raise InvalidObventError(class_name(self._cls), f"{condition!r}: expected a condition")
        if self._cls is not None:
            condition.check(self._cls)
        self.remove(key)
        group = self._groups.get(condition.key)
        if group is None:
            group = ConditionGroup(condition.key, condition, [key])
            self._groups[group.key] = group
            self._put(group)
        else:
            group.keys.append(key)
            self._change(group)
        self._of[key] = group
        self._choose()

    def remove(self, key: K) -> None:
        """Removes a key and its condition. An unknown key is no error."""
        group = self._of.pop(key, None)
        if group is None:
            return
        if len(group.keys) > 1:
            group.keys.remove(key)
            self._change(group)
        else:
            del self._groups[group.key]
            self._drop(group)
        self._choose()

    def __len__(self) -> int:
        return len(self._of)

    def __iter__(self) -> Iterator[K]:
        return iter(self._of)

    def __contains__(self, key: object) -> bool:
        return key in self._of

    def __getitem__(self, key: K) -> Condition:
        return self._of[key].condition

    def _put(self, group: ConditionGroup) -> None:
        if self._given == "tree":
            self._tree.put(group)
            return
        self._static.put(group)
        if self._index is not None:
            self._lift(group)
            return
        is_large = self._cls is not None and len(self._groups) >= INDEXED_MIN
        if self._given is None and is_large:
            self._index = self._new_index()
            for each in self._groups.values():
                self._lift(each)

    def _lift(self, group: ConditionGroup) -> None:
        assert self._index is not None
        if not self._index.put(group):
            self._rest.put(group)

    def _drop(self, group: ConditionGroup) -> None:
        if self._given == "tree":
            self._tree.drop(group)
            return
        self._static.drop(group)
        self._rest.drop(group)
        if self._index is not None:
            self._index.drop(group)

    def _change(self, group: ConditionGroup) -> None:
        self._static.change(group)
        self._rest.change(group)
        if self._index is not None:
            self._index.change(group)

    # --- forms --------------------------------------------------------------------------------

    @property
    def form(self) -> FormName:
        """The form in which the set matches now."""
        if self._given is not None:
            return self._given
        index = self._index
        if index is None:
            return "static"
        least = INDEXED_MIN + INDEXED_MIN_PER_ATTRIBUTE * index.attributes
        return "indexed" if len(index) >= least else "static"

    def settle(self) -> None:
        """Compiles static filters and optimizes the index, as otherwise happens during matching.
        Cost: some 60 microseconds a condition.
        """
        match self.form:
            case "static":
                self.matching = self._static.function()
            case "indexed" if self._index is not None:
                self._index.renew()
                self._rest.compile()

    def _new_index(self) -> IndexedForm:
        assert self._cls is not None
        return IndexedForm(self._cls)

    def _choose(self) -> None:
        match self.form:
            case "tree":
                self.matching = self._tree.matching
            case "static":
                self.matching = self._match_static
            case "indexed":
                self.matching = self._match_indexed

    def _match_static(self, obvent: Any) -> list[K]:
        found = self._static.matching(obvent)
        if self._static.is_compiled:
            self.matching = self._static.function()
        return found

    def _match_indexed(self, obvent: Any) -> list[K]:
        assert self._index is not None
        found = self._index.matching(obvent)
        if found is None:
            return self._static.matching(obvent)
        return found + self._rest.matching(obvent) if len(self._rest) else found
