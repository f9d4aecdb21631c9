"""The invocation tree: shared parts of accessors are evaluated once for each obvent.

Each access and invocation in some condition, with its arguments, is a node below the node to whose
value it is applied; conditions then ask nodes. A node is evaluated when it is first asked about an
obvent; a node that raises, raises the same error for every condition that asks it.

Source: EPFL 2503 §4.5.4, figure 4.16.
"""

from collections.abc import Hashable
from typing import Any

from contrada.model.languages.atoms import failures
from contrada.typed.conditions.accessors import WHOLE, Accessor
from contrada.typed.conditions.condition_groups import ConditionGroup
from contrada.typed.conditions.conditions import FAILURE, Condition


class InvocationTree:
    """Groups of equal conditions, with one tree for all their accessors.

    Methods of obvents must not change them, nor depend on how often they are called.
    Cost: of an obvent, each node once, and some tenths of a microsecond for each condition.
    """

    def __init__(self) -> None:
        self._nodes: dict[Hashable, _TreeNode] = {}
        self._asked: dict[Hashable, tuple[Condition, ConditionGroup]] = {}
        self.turn = 0

    def put(self, group: ConditionGroup) -> None:
        """Adds a new group, and the nodes that it needs."""
        self._asked[group.key] = group.condition.rebuilt(self._shared), group

    def drop(self, group: ConditionGroup) -> None:
        """Takes a group away, and the nodes that no other needs."""
        del self._asked[group.key]
        for each in group.condition.accessors():
            self._release(each)

    def __len__(self) -> int:
        """How many nodes there are."""
        return len(self._nodes)

    def matching(self, obvent: Any) -> list[Any]:
        """The keys of the groups that an obvent matches."""
        self.turn += 1
        found: list[Any] = []
        for condition, group in self._asked.values():
            try:
                if condition.holds(obvent):
                    found += group.keys
            except Exception:  # noqa: BLE001 - the obvent's own code
                failures.add(FAILURE)
        return found

    def _shared(self, accessor: Accessor) -> Accessor:
        """The node of an accessor, with one use more."""
        if accessor is WHOLE:
            return accessor
        key = accessor.key
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = _TreeNode(self, accessor.rebuilt(self._shared))
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
    """An accessor, and what it got of the obvent that is looked at."""

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
        # A method may have the same tree look at another obvent meanwhile.
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
