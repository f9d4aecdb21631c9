"""The filter library: figures 4.15 and 4.17 to 4.20 of EPFL 2503, and the index that is added here.

As in the thesis, n subscribers with one condition each match an obvent. A condition has an accessor
that descends i of v levels, each i with the same frequency, by one of w methods at each level, and
an expected value that a share p₁ of the obvents has. Times are processor times of matching alone.

*naive*, *tree* and *static* are the thesis's: each condition by itself, the invocation tree, and
static filters, one for each subscriber. *shared* is the static form here: static filters with the
tree in them, and equal conditions once. *indexed* is the index; *default* is the form that a set
uses by itself. In second runs of figures 4.18 and 4.20 all conditions differ: they are bounds.

In the *mixed* workload each condition joins a comparison of a field with one of a method that no
filter expresses.

The curves are drawn into out/typed_conditions.svg.
"""

import ast
import operator
import random
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from time import process_time
from typing import Any, Final

from matplotlib.figure import Figure as Picture

from bench.harness import Measurement, figure
from contrada.typed import Obvent
from contrada.typed.conditions import Condition, ConditionSet, Equals, Invoke, Less
from contrada.typed.conditions.condition_source import ConditionSource, compile_function
from contrada.typed.conditions.invocation_tree import ConditionGroup, InvocationTree

OUT: Final = Path(__file__).parents[1] / "out"
OBVENTS: Final = 100
ROUNDS: Final = 7
SAMPLE_S: Final = 0.01
SLOW: Final = {"naive", "tree"}
RATES: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
SIZES: Final = (20, 50, 100, 150, 300, 1_000, 10_000)
MANY: Final = (20, 50, 100, 200, 300, 500, 1_000, 10_000)
NESTINGS: Final = (0, 1, 2, 3, 4, 5)
METHODS: Final = (1, 2, 3, 5, 10)

Matching = Callable[[Any], list[int]]
Times = dict[str, list[float]]
"""Seconds for an obvent by form, a sample each round; the forms take turns."""

CLASS: Final = """
@dataclass
class {name}{base}:
{fields}
{methods}
"""
METHOD: Final = """
    @final
    def get_{name}(self):
        return self.{name}
"""
_numbers: Final = count(1)


@dataclass
class Market:
    """A market of the mixed workload."""

    name: str

    def get_name(self) -> str:
        """A subclass may override it, so no filter expresses it."""
        return self.name


@dataclass
class Quote(Obvent, name="bench.conditions.Quote"):
    """An obvent of the mixed workload."""

    price: float
    market: Market

    def get_market(self) -> Market:
        """A subclass may override it."""
        return self.market


@dataclass(frozen=True, slots=True)
class Setting:
    """The parameters of the thesis."""

    p1: float = 0.1
    n: int = 100
    v: int = 2
    w: int = 1
    distinct: bool = False

    def text(self, number: float) -> str:
        """A text of a number from 0 to 1: one of 1 / p₁, or as many as there are numbers."""
        return f"{number:.12f}" if self.distinct else f"value {int(number / self.p1)}"


@cache
def classes(v: int, w: int) -> list[type[Any]]:
    """A class for each level, the obvent's first: w texts and inner objects, with a method each."""
    made: list[type[Any]] = []
    for level in range(v, -1, -1):
        texts = {f"text{at}": "str" for at in range(w)}
        inner = {f"inner{at}": made[-1].__name__ for at in range(w)} if made else {}
        fields = "\n".join(f"    {name}: {cls}" for name, cls in (texts | inner).items())
        methods = "".join(METHOD.format(name=name) for name in texts | inner)
        name = f"Level{level}of{v}by{w}"
        base = "" if level else f"(Obvent, name='bench.conditions.{next(_numbers)}')"
        space: dict[str, Any] = {each.__name__: each for each in made}
        text = "from dataclasses import dataclass\nfrom typing import final\n"
        text += "from contrada.typed import Obvent\n"
        text += CLASS.format(name=name, base=base, fields=fields, methods=methods)
        space["__name__"] = __name__
        exec(text, space)
        made.append(space[name])
    return made[::-1]


def obvent(levels: Sequence[type[Any]], setting: Setting, chance: random.Random) -> Any:
    """One obvent with random texts."""
    many = range(setting.w)
    inner = [obvent(levels[1:], setting, chance) for _ in many] if len(levels) > 1 else []
    return levels[0](*(setting.text(chance.random()) for _ in many), *inner)


def condition(setting: Setting, chance: random.Random) -> Condition:
    """The condition of one subscriber."""
    depth = chance.randrange(setting.v + 1)
    names = [f"get_inner{chance.randrange(setting.w)}" for _ in range(depth)]
    accessor = Invoke(".".join((*names, f"get_text{chance.randrange(setting.w)}")))
    if setting.distinct:
        return Less(accessor, setting.text(chance.random() * 2 * setting.p1))
    return Equals(accessor, setting.text(chance.random()))


def conditions(setting: Setting) -> list[Condition]:
    chance = random.Random(17)
    return [condition(setting, chance) for _ in range(setting.n)]


@cache
def measured(setting: Setting) -> Times:
    """The times of all forms of a setting."""
    chance = random.Random(18)
    levels = classes(setting.v, setting.w)
    obvents = [obvent(levels, setting, chance) for _ in range(OBVENTS)]
    return compared(conditions(setting), levels[0], obvents)


@cache
def mixed(n: int) -> Times:
    """The times of n conditions that join a field and a method that a subclass may override."""
    chance = random.Random(17)
    near = Equals(Invoke("get_market.get_name"), "Zurich")
    bounds = [Less("price", chance.uniform(0, 100)) & near for _ in range(n)]
    places = ("Zurich", "Geneva", "Bern", "Basel")
    quotes = [Quote(chance.uniform(0, 100), Market(chance.choice(places))) for _ in range(OBVENTS)]
    return compared(bounds, Quote, quotes)


def compared(asked: list[Condition], cls: type[Any], obvents: list[Any]) -> Times:
    """The times of all forms, after a check that all give the same keys."""
    forms = matchings(asked, cls, obvents)
    expected = [sorted(forms["shared"](each)) for each in obvents]
    for form, matching in forms.items():
        seen = obvents[:5] if form in SLOW else obvents
        assert [sorted(matching(each)) for each in seen] == expected[: len(seen)], form
    return timed(forms, obvents, SLOW)


def matchings(asked: list[Condition], cls: type[Any], obvents: list[Any]) -> dict[str, Matching]:
    """The matching functions by form, compiled."""
    tree = InvocationTree()
    for key, each in enumerate(asked):
        tree.put(ConditionGroup(key, each, [key]))
    sets: dict[str, ConditionSet[int]] = {
        "shared": ConditionSet(cls, form="static"),
        "indexed": ConditionSet(cls, form="indexed"),
        "default": ConditionSet(cls),
    }
    for held in sets.values():
        for key, each in enumerate(asked):
            held.add(key, each)
        for seen in obvents[:20]:
            held.matching(seen)
        held.settle()
    pairs = list(enumerate(asked))
    return {
        "naive": lambda seen: [key for key, each in pairs if each.conforms(seen)],
        "tree": tree.matching,
        "static": unshared(asked),
        **{name: held.matching for name, held in sets.items()},
    }


def unshared(asked: list[Condition]) -> Matching:
    """The static filters of the thesis: each condition evaluates all its accessors."""
    source = ConditionSource(literal=True)
    body = ast.parse("found = []").body
    for key, each in enumerate(asked):
        found: Any = ast.parse(f"try:\n if it: found.append({key})\nexcept Exception: pass").body[0]
        found.body[0].test = each.expression(source)
        body.append(found)
    return compile_function("matching", [*body, *ast.parse("return found").body], source.names)


def timed(
    forms: Mapping[str, Callable[[Any], object]], seen: list[Any], slow: Iterable[str] = ()
) -> Times:
    """Seconds for one obvent by form, all forms in turn."""
    plans = {}
    for form, call in forms.items():
        few = seen[:5] if form in slow else seen
        took = max(sample(call, few, 1), 1e-8)
        plans[form] = (few, max(1, round(SAMPLE_S / took / len(few))))
    times: Times = {form: [] for form in forms}
    for _ in range(ROUNDS):
        for form, call in forms.items():
            times[form].append(sample(call, *plans[form]))
    return times


def sample(call: Callable[[Any], object], seen: list[Any], repeats: int) -> float:
    begun = process_time()
    for _ in range(repeats):
        for each in seen:
            call(each)
    return (process_time() - begun) / repeats / len(seen)


def ratio(times: Times, slower: str, faster: str) -> list[float]:
    """The ratio of the times of two forms, round by round."""
    return [a / b for a, b in zip(times[slower], times[faster], strict=True)]


# --- figure 4.15 ----------------------------------------------------------------------------------

ARGUMENTS: Final = range(11)
TAKER: Final = "class Taker:\n" + "".join(
    f"    def take{n}(self, {', '.join(f'a{at}' for at in range(n))}):\n        return self\n"
    for n in ARGUMENTS
)


@cache
def styles() -> dict[int, Times]:
    """Calls of a method with arguments: looked up, dynamic, and static."""
    space: dict[str, Any] = {}
    exec(TAKER, space)
    taker = space["Taker"]()
    found = {}
    for n in ARGUMENTS:
        arguments = tuple(f"argument {at}" for at in range(n))
        method = getattr(type(taker), f"take{n}")
        function = operator.methodcaller(f"take{n}", *arguments)
        listed = ", ".join(repr(each) for each in arguments)
        calls: dict[str, Callable[[Any], object]] = {
            "with lookup": Invoke(f"take{n}", arguments).eval,
            "dynamic": function,
            "static": eval(f"lambda taker: taker.take{n}({listed})", {}),
        }
        assert all(call(taker) is taker for call in calls.values())
        assert method(taker, *arguments) is taker
        found[n] = timed(calls, [taker] * OBVENTS)
    return found


@figure(
    name="typed/conditions/lookup",
    unit="times",
    workload="figure 4.15: an Invoke by name, against a static call, 0 to 10 arguments",
)
def lookup_cost() -> Measurement:
    return Measurement(
        [statistics.median(ratio(it, "with lookup", "static")) for it in styles().values()]
    )


@figure(
    name="typed/conditions/dynamic",
    unit="times",
    workload="figure 4.15: a dynamic call, against a static one, 0 to 10 arguments",
)
def dynamic_cost() -> Measurement:
    return Measurement(
        [statistics.median(ratio(it, "dynamic", "static")) for it in styles().values()]
    )


# --- figures 4.17 to 4.20 -------------------------------------------------------------------------

SWEEPS: Final[dict[str, tuple[str, list[tuple[float, Setting]]]]] = {
    "4.17": ("matching rate p₁ (v = 0, n = 20, w = 1)", [(p, Setting(p, 20, 0)) for p in RATES]),
    "4.18": ("subscribers n (p₁ = 0.1, w = 1, v = 2)", [(n, Setting(n=n)) for n in SIZES]),
    "4.18 distinct": (
        "subscribers n, no two conditions equal",
        [(n, Setting(n=n, distinct=True)) for n in MANY],
    ),
    "4.19": ("nesting v (p₁ = 0.1, n = 100, w = 1)", [(v, Setting(v=v)) for v in NESTINGS]),
    "4.20": ("methods w (p₁ = 0.1, n = 100, v = 1)", [(w, Setting(v=1, w=w)) for w in METHODS]),
    "4.20 distinct": (
        "methods w, n = 1,000, no two conditions equal",
        [(w, Setting(n=1_000, v=1, w=w, distinct=True)) for w in METHODS],
    ),
}


def draw() -> None:
    """All curves, into one picture."""
    picture = Picture(figsize=(11, 17), layout="constrained")
    panels = picture.subplots(4, 2).flat
    axes = next(panels)
    for style in ("with lookup", "dynamic", "static"):
        ns = [1e9 * statistics.median(styles()[n][style]) for n in ARGUMENTS]
        axes.plot(ARGUMENTS, ns, marker="o", markersize=3, label=style)
    axes.set(title="Figure 4.15: invocation styles", xlabel="arguments", ylabel="ns a call")
    axes.legend()
    for (name, (varied, points)), axes in zip(SWEEPS.items(), panels, strict=False):
        for form in ("naive", "tree", "static", "shared", "indexed", "default"):
            us = [1e6 * statistics.median(measured(each)[form]) for _, each in points]
            line = "k:" if form == "default" else "-"
            axes.plot([x for x, _ in points], us, line, marker="o", markersize=3, label=form)
        is_wide = points[-1][0] / max(points[0][0], 1e-9) >= 50
        axes.set(title=f"Figure {name}", xlabel=varied, ylabel="µs an obvent", yscale="log")
        axes.set_xscale("log" if is_wide and points[0][0] > 0 else "linear")
        axes.legend(fontsize="small")
    OUT.mkdir(exist_ok=True)
    for axes in panels:
        axes.set_visible(False)
    picture.savefig(OUT / "typed_conditions.svg")


@figure(
    name="typed/conditions/figures",
    unit="times",
    workload="figures 4.17 to 4.20, drawn: naive against static filters, at all their points",
)
def figures() -> Measurement:
    draw()
    settings = [each for _, points in SWEEPS.values() for _, each in points]
    return Measurement(
        [statistics.median(ratio(measured(each), "naive", "static")) for each in settings]
    )


def alone(form: str, setting: Setting) -> Measurement:
    return Measurement(measured(setting)[form])


@figure(
    name="typed/conditions/static-20",
    unit="us",
    workload="20 static filters, v = 2, p1 = 0.1, an obvent (measured elsewhere: 0.6 to 1.3)",
)
def static_20() -> Measurement:
    return alone("static", Setting(n=20))


@figure(
    name="typed/conditions/static-1000",
    unit="us",
    workload="1,000 static filters, v = 2, p1 = 0.1, an obvent (measured elsewhere: 24 to 58)",
)
def static_1000() -> Measurement:
    return alone("static", Setting(n=1_000))


def ahead(n: int, distinct: bool = False, of: str = "static", by: str = "indexed") -> Measurement:
    return Measurement(ratio(measured(Setting(n=n, distinct=distinct)), of, by))


@figure(
    name="typed/conditions/indexed-150",
    unit="times",
    workload="150 conditions, v = 2, p1 = 0.1: static filters against the index",
    at_least=1.0,
)
def indexed_150() -> Measurement:
    return ahead(150)


@figure(
    name="typed/conditions/indexed-1000",
    unit="times",
    workload="1,000 conditions, v = 2, p1 = 0.1: static filters against the index",
    at_least=5.0,
)
def indexed_1000() -> Measurement:
    return ahead(1_000)


@figure(
    name="typed/conditions/indexed-10000",
    unit="times",
    workload="10,000 conditions, v = 2, p1 = 0.1: static filters against the index",
    at_least=40.0,
)
def indexed_10000() -> Measurement:
    return ahead(10_000)


@figure(
    name="typed/conditions/shared-1000",
    unit="times",
    workload="1,000 conditions, no two equal: static filters against those with the tree in them",
    at_least=1.2,
)
def shared_1000() -> Measurement:
    return ahead(1_000, distinct=True, by="shared")


@figure(
    name="typed/conditions/distinct-1000",
    unit="times",
    workload="1,000 conditions, no two equal: static filters against the index",
)
def distinct_1000() -> Measurement:
    return ahead(1_000, distinct=True)


@figure(
    name="typed/conditions/distinct-10000",
    unit="times",
    workload="10,000 conditions, no two equal: static filters against the index",
)
def distinct_10000() -> Measurement:
    return ahead(10_000, distinct=True)


def least_ratio(times: Times) -> float:
    """The least processor time of the default form, by that of the best form."""
    least = {form: min(it) for form, it in times.items()}
    return least.pop("default") / min(least.values())


@figure(
    name="typed/conditions/mixed-1000",
    unit="times",
    workload="1,000 conditions that join a field and a method: the default against the best form",
    at_most=1.1,
)
def mixed_1000() -> Measurement:
    return Measurement([least_ratio(mixed(1_000))])


@figure(
    name="typed/conditions/default",
    unit="times",
    workload="the default against the best form, the worst of all points of all figures, and mixed",
    at_most=1.15,
)
def default() -> Measurement:
    settings = [each for _, points in SWEEPS.values() for _, each in points]
    every = [*map(measured, settings), *(mixed(n) for n in MANY)]
    return Measurement([max(map(least_ratio, every))])
