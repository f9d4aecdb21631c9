"""`InvocationTree`: conditions that share the evaluation of their accessors.

Each access or invocation in a condition, with its arguments, is a node below the node of its
operand. Conditions read nodes. A node is evaluated at its first use for an obvent. A node that
raises, raises the same error in each condition that reads it.

Source: EPFL 2503 §4.5.4, figure 4.16.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from contrada.model.languages.atoms import failures
from contrada.typed.conditions.accessors import WHOLE, Accessor
from contrada.typed.conditions.conditions import FAILURE, Condition


@dataclass(slots=True, eq=False)
class ConditionGroup:
    """A condition, and the keys of all subscribers with this or an equal one; never empty."""

    key: Hashable
    condition: Condition
    keys: list[Any] = field(default_factory=list)


class InvocationTree:
    """Groups of equal conditions, with one tree of all their accessors.

    Methods of obvents must not change them, nor depend on the number of calls.
    Cost of an obvent: each node once, and some tenths of a microsecond for each condition.
    """

    def __init__(self) -> None:
        self._nodes: dict[Hashable, _TreeNode] = {}
        self._groups: dict[Hashable, tuple[Condition, ConditionGroup]] = {}
        self.turn = 0

    def put(self, group: ConditionGroup) -> None:
        """Adds a new group, and its missing nodes."""
        self._groups[group.key] = group.condition.with_accessors(self._share), group

    def drop(self, group: ConditionGroup) -> None:
        """Removes a group, and the nodes that no other group uses."""
        del self._groups[group.key]
        for each in group.condition.accessors():
            self._release(each)

    def __len__(self) -> int:
        return len(self._nodes)

    def matching(self, obvent: Any) -> list[Any]:
        """Returns the keys of the groups that an obvent matches."""
        self.turn += 1
        found: list[Any] = []
        for condition, group in self._groups.values():
            try:
                if condition.holds(obvent):
                    found += group.keys
            except Exception:  # noqa: BLE001 - the obvent's own code
                failures.add(FAILURE)
        return found

    def _share(self, accessor: Accessor) -> Accessor:
        if accessor is WHOLE:
            return accessor
        key = accessor.key
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = _TreeNode(self, accessor.with_operands(self._share))
        node.uses += 1
        return node

    def _release(self, accessor: Accessor) -> None:
        if accessor is WHOLE:
            return
        node = self._nodes[accessor.key]
        node.uses -= 1
        if node.uses == 0:
            del self._nodes[accessor.key]
            for each in accessor.operands():
                self._release(each)


class _TreeNode(Accessor):
    """An accessor, and its value for the present obvent."""

    def __init__(self, tree: InvocationTree, accessor: Accessor) -> None:
        self._tree = tree
        self._accessor = accessor
        self._turn = 0
        self._obvent: Any = None
        self._value: Any = None
        self._error: Exception | None = None
        self.depth = accessor.depth
        self.uses = 0

    def eval(self, obvent: Any) -> Any:
        # The turn alone is not enough: a method may match another obvent by the same tree.
        if self._turn != self._tree.turn or self._obvent is not obvent:
            turn = self._tree.turn
            value, error = None, None
            try:
                value = self._accessor.eval(obvent)
            except Exception as raised:  # noqa: BLE001 - the obvent's own code; raised below
                error = raised.with_traceback(None)
            self._turn, self._obvent, self._value, self._error = turn, obvent, value, error
        if self._error is not None:
            raise self._error.with_traceback(None)
        return self._value
