"""Many conditions of one type, and which of them an obvent matches.

    asked = ConditionSet(StockQuote)
    asked.add("anna", Less("price", 100.0))
    asked.matching(StockQuote("Telco", 80.0))  # ["anna"]

A set has its conditions in one of four forms: *naive*, each evaluated as it is; an invocation
*tree*; *static*, compiled into functions; *indexed*, lifted into filters. The answers are the same.
Where none is asked for, a planner chooses: new conditions are evaluated by a tree until compiling
them pays, and are lifted where there are so many that an index finds them sooner, and lifting pays.

Source: EPFL 2503 §4.5.4.
"""

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

from contrada.errors import InvalidObventError
from contrada.matching.kernels import jit
from contrada.typed.conditions.condition_groups import ConditionGroup
from contrada.typed.conditions.conditions import Condition
from contrada.typed.conditions.indexed_conditions import IndexedForm
from contrada.typed.conditions.invocation_tree import InvocationTree
from contrada.typed.conditions.static_filter import COMPILE_AFTER, StaticForm

K = TypeVar("K", bound=Hashable)

FormName: TypeAlias = Literal["naive", "tree", "static", "indexed"]

LIFT_AFTER: Final = 20_000
"""Obvents after which conditions are lifted, where an index would be ahead: what static filters
have lost by then is about what lifting costs."""

LIFTS_AT_ONCE: Final = 32
"""Conditions lifted beside one obvent, some 10 milliseconds. Beyond it: beside the next ones."""

COMPARISON_NS: Final = 17
"""What a comparison among static filters takes; all these are ratios, on any machine."""

ACCESSOR_NS: Final = 120
"""What an accessor takes among static filters, however many of them ask it."""

INDEX_NS: Final = {True: 1_400, False: 4_000}
"""What an index takes for an obvent; with compiled kernels, and without."""

ATTRIBUTE_NS: Final = 600
"""What an index takes for each attribute that some filter asks for."""

CANDIDATE_NS: Final = {True: 45, False: 600}
"""What an index takes for each filter it examines, at least those that match."""

RECENT_OBVENTS: Final = 16
"""Obvents kept, the last ones, to see how many filters an index looks at."""

PRIOR_OBVENTS: Final = 10
PRIOR_MATCHES: Final = 1
"""Before any obvent came, a condition is taken to match PRIOR_MATCHES of PRIOR_OBVENTS."""


class ConditionSet(Generic[K]):
    """Keys with their conditions, all on objects of a class.

    Without a class nothing is checked, and no index is used: any objects that have what the
    conditions ask for are matched. `compiled` says whether an index uses compiled kernels; None,
    where they are loaded, or on disk. Methods that conditions ask must not change obvents, and how
    often a method is called is unspecified. Used by one thread at a time.

    `matching(obvent)` gives the keys of the conditions that an obvent matches, in no order. It is
    an attribute, another function when conditions have come or gone: do not keep it.
    """

    matching: Callable[[Any], list[K]]

    def __init__(
        self,
        cls: type[Any] | None = None,
        *,
        form: FormName | None = None,
        compiled: bool | None = None,
    ) -> None:
        if form not in (None, "naive", "tree", "static", "indexed"):
            expected = "expected 'naive', 'tree', 'static', 'indexed' or None"
            raise InvalidObventError(_name(cls), f"form = {form!r}: {expected}")
        if form == "indexed" and cls is None:
            raise InvalidObventError("any", "the indexed form needs a class, whose fields it reads")
        self._cls = cls
        self._given = form
        self._compiled = compiled
        self._of: dict[K, ConditionGroup] = {}
        self._groups: dict[Hashable, ConditionGroup] = {}
        self._comparisons = 0.0
        self._accessors: Counter[Hashable] = Counter()
        self._tree = InvocationTree()
        self._static = StaticForm()
        self._index: IndexedForm | None = None
        self._is_indexed = False
        self._candidates: float | None = None
        self._rest = StaticForm()
        self._waiting: dict[ConditionGroup, None] = {}
        self._refused = 0
        self._asked = self._seen = self._matched = 0
        self._recent: deque[Any] = deque(maxlen=RECENT_OBVENTS)
        self._plan()

    # --- keys ---------------------------------------------------------------------------------

    def add(self, key: K, condition: Condition) -> None:
        """Gives a key its condition, instead of the one it had. Raises InvalidObventError.

        It is checked against the class first. Cost: some tens of microseconds.
        """
        hash(key)
        if not isinstance(condition, Condition):
            raise InvalidObventError(_name(self._cls), f"{condition!r}: expected a condition")
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
        self._plan()

    def remove(self, key: K) -> None:
        """Takes a key and its condition away; a key that is not there is no error."""
        group = self._of.pop(key, None)
        if group is None:
            return
        if len(group.keys) > 1:
            group.keys.remove(key)
            self._change(group)
        else:
            del self._groups[group.key]
            self._drop(group)
        self._plan()

    def __len__(self) -> int:
        return len(self._of)

    def __iter__(self) -> Iterator[K]:
        return iter(self._of)

    def __contains__(self, key: object) -> bool:
        return key in self._of

    def __getitem__(self, key: K) -> Condition:
        """The condition of a key, or one that equals it. KeyError where there is none."""
        return self._of[key].condition

    def _put(self, group: ConditionGroup) -> None:
        self._comparisons += group.comparisons
        self._accessors.update(each.key for each in group.condition.accessors())
        if self._given == "tree":
            self._tree.put(group)
        elif self._given != "naive":
            self._static.put(group)
            self._waiting[group] = None
            if self._is_indexed:
                self._rest.put(group)

    def _drop(self, group: ConditionGroup) -> None:
        self._comparisons -= group.comparisons
        for accessor in group.condition.accessors():
            self._accessors[accessor.key] -= 1
            if not self._accessors[accessor.key]:
                del self._accessors[accessor.key]
        if self._given == "tree":
            self._tree.drop(group)
        elif self._given != "naive":
            self._static.drop(group)
            self._rest.drop(group)
            self._waiting.pop(group, None)
            if self._index is not None:
                self._index.drop(group)

    def _change(self, group: ConditionGroup) -> None:
        """The keys of a group have changed."""
        self._static.change(group)
        self._rest.change(group)
        if self._index is not None:
            self._index.change(group)

    # --- matching -----------------------------------------------------------------------------

    def _naive(self, obvent: Any) -> list[K]:
        return [key for key, group in self._of.items() if group.condition.conforms(obvent)]

    def _ask(self, obvent: Any) -> list[K]:
        if self._index is not None and self._is_indexed:
            found = self._index.matching(obvent)
            if found is not None:
                return found + self._rest.ask(obvent) if len(self._rest) else found
        return self._static.ask(obvent)

    def _unsettled(self, obvent: Any) -> list[K]:
        """Matches, and does a bounded piece of what is to be done."""
        found = self._ask(obvent)
        self._seen += 1
        self._recent.append(obvent)
        self._matched += len(found)
        if (self._rest if self._is_indexed else self._static).is_compiled:
            self._asked += 1
            if not self._waiting or not self._wants_index():
                self.matching = self._settled()
            elif self._asked > LIFT_AFTER:
                self._lift(LIFTS_AT_ONCE)
        return found

    def _settled(self) -> Callable[[Any], list[K]]:
        """What matches as long as nothing comes or goes."""
        return self._ask if self._is_indexed else self._static.compiled()

    # --- planning -----------------------------------------------------------------------------

    @property
    def form(self) -> FormName:
        """The form that the conditions have now."""
        if self._given in ("naive", "tree"):
            return self._given
        if self._is_indexed:
            return "indexed"
        return "static" if self._static.is_compiled else "tree"

    def settle(self) -> None:
        """Compiles and lifts at once what else is done in time. Cost: up to a millisecond each."""
        if self._given in ("naive", "tree"):
            return
        if self._waiting and self._wants_index():
            self._lift(len(self._waiting))
        if self._is_indexed:
            self._rest.compile()
        self.matching = self._settled()

    def explain(self) -> str:
        """What form the conditions have, and why, in words."""
        lines = [
            f"{len(self._of)} conditions, {len(self._groups)} of them different, "
            f"of {self._comparisons} comparisons: {self.form}"
        ]
        if self._index is not None:
            lines.append(
                f"{len(self._index)} are lifted, {len(self._waiting)} wait for it, "
                f"{len(self._groups) - len(self._index) - len(self._waiting)} cannot be"
            )
        if self._given is not None:
            lines.append(f"{self._given} was asked for")
        elif self._cls is None:
            lines.append("without a class there is nothing to lift")
        else:
            static, indexed = self._costs_ns(self._comparisons, self._candidates)
            lines.append(f"estimated ns an obvent: static {static:,.0f}, indexed {indexed:,.0f}")
            if self.form == "tree":
                lines.append(f"compiled when {COMPILE_AFTER} obvents have come")
            elif not self._is_indexed and self._wants_index():
                lines.append(f"lifted when {LIFT_AFTER:,} obvents have come")
        return "\n".join(lines)

    def _plan(self) -> None:
        """Conditions have come or gone: what matches until all is settled anew."""
        if self._given == "naive":
            self.matching = self._naive
        elif self._given == "tree":
            self.matching = self._tree.matching
        else:
            self._leave_index()
            self.matching = self._unsettled

    def _leave_index(self) -> None:
        """Goes back to static filters where an index is far from being ahead."""
        static, indexed = self._costs_ns(self._comparisons, self._candidates)
        if self._index is not None and self._given is None and 2 * static < indexed:
            self._forget_index()

    def _forget_index(self) -> None:
        self._index, self._is_indexed, self._rest = None, False, StaticForm()
        self._candidates = None
        self._waiting = dict.fromkeys(self._groups.values())

    def _wants_index(self) -> bool:
        """Whether conditions that wait are to be lifted."""
        if self._given is not None or self._cls is None:
            return self._given == "indexed"
        if len(self._groups) < 2 * self._refused:
            return False
        static, indexed = self._costs_ns(self._comparisons)
        return self._is_indexed or static > indexed

    def _costs_ns(self, comparisons: float, candidates: float | None = None) -> tuple[float, float]:
        """What an obvent costs, by static filters and by an index, where all are lifted."""
        kernels = self._uses_kernels()
        share = (self._matched + PRIOR_MATCHES * len(self._of)) / (
            (self._seen + PRIOR_OBVENTS) * max(len(self._of), 1)
        )
        matched, accessors = share * len(self._groups), len(self._accessors)
        static = COMPARISON_NS * comparisons + ACCESSOR_NS * accessors
        indexed = (
            INDEX_NS[kernels]
            + ATTRIBUTE_NS * accessors
            + CANDIDATE_NS[kernels] * (matched if candidates is None else candidates)
        )
        return static, indexed

    def _uses_kernels(self) -> bool:
        if jit.is_pure() or self._compiled is False:
            return False
        return bool(self._compiled) or jit.loaded() or jit.is_cached()

    def _lift(self, count: int) -> None:
        """Lifts some of those that wait. After the last the index is used, where it has enough."""
        assert self._cls is not None
        if self._index is None:
            self._index = IndexedForm(self._cls, is_compiled=self._uses_kernels())
        for group in list(self._waiting)[:count]:
            del self._waiting[group]
            if self._index.put(group):
                self._rest.drop(group)
            elif group not in self._rest:
                self._rest.put(group)
        if not self._waiting:
            self._asked = 0
            self._index.renew()
            self._candidates = self._index.candidates(self._recent)
            static, indexed = self._costs_ns(self._index.comparisons, self._candidates)
            if self._given is None and static < indexed:
                self._refused = len(self._groups)
                self._forget_index()
            else:
                self._is_indexed = True


def _name(cls: type[Any] | None) -> str:
    return "any" if cls is None else cls.__qualname__
