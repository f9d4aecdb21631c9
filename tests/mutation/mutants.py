"""Mutants of modules: all that cosmic-ray knows, or one at each place of a seeded sample.

cosmic-ray replaces a binary operator by each of ten others, and most of these die of the same
test. Places that are drawn, each with one of its mutants, represent the source better.
"""

import ast
import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

from cosmic_ray.commands import init
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import MutationSpec, WorkItem

Span: TypeAlias = tuple[tuple[int, int], tuple[int, int]]
"""The line and column of the first character, and those after the last one."""

WITHOUT_EFFECT: Final = {"entry", "kernel", "overload", "override"}
"""Decorators that return an interpreted function as it is, as those of Cython do."""

UNNOTICED: Final = {
    f"core/ReplaceComparisonOperator_{each}"
    for each in ("Eq_Is", "Is_Eq", "NotEq_IsNot", "IsNot_NotEq")
}
"""Replacements that change nothing for small numbers, members of enumerations and None."""


def is_compiled(module: Path) -> bool:
    """Whether `contrada._native` has the functions of a module."""
    return module.parent.name == "kernels" or module.name.startswith("plain_")


def draw_mutants(
    modules: list[Path], count: int | None, seed: int, scratch: Path
) -> list[WorkItem]:
    """Returns the mutants of `count` places, or with None all mutants, always the same of a seed.

    Args:
        modules: Paths relative to the working directory.
        count: Places; of fewer ones all are taken.
        seed: Of the random numbers.
        scratch: Path of a database that is removed again.
    """
    mutants = find_mutants(modules, scratch)
    if count is not None:
        places: dict[tuple[Path, tuple[int, int], str], list[MutationSpec]] = defaultdict(list)
        for each in mutants:
            # `core/ReplaceBinaryOperator_Add_Sub` and `…_Add_Mul` are of one family.
            family = str(each.operator_name).partition("_")[0]
            places[each.module_path, each.start_pos, family].append(each)
        rng = random.Random(seed)
        drawn = rng.sample(sorted(places), min(count, len(places)))
        mutants = [rng.choice(places[place]) for place in drawn]
    return [WorkItem.single(f"{number:06d}", each) for number, each in enumerate(mutants)]


def find_mutants(modules: list[Path], scratch: Path) -> list[MutationSpec]:
    """Returns the mutants of modules that tests can notice, in order of their places.

    Those of types, which nothing evaluates, of `UNNOTICED`, and of the methods `validate`, which
    are a part of tests, are left out, and the `*` before arguments with names, which cosmic-ray
    replaces as a product.
    """
    with use_db(str(scratch), WorkDB.Mode.create) as database:
        init(modules, database, {})
        found = [item.mutations[0] for item in database.work_items]
    scratch.unlink()
    sources = {each: each.read_text("utf-8") for each in modules}
    types = {each: list(type_spans(source)) for each, source in sources.items()}
    lines = {each: source.splitlines() for each, source in sources.items()}
    evaluated = (
        each
        for each in found
        if each.operator_name not in UNNOTICED and each.definition_name != "validate"
        if not lines[each.module_path][each.start_pos[0] - 1].startswith("*,", each.start_pos[1])
        if not any(start <= each.start_pos < end for start, end in types[each.module_path])
    )
    return sorted(
        evaluated,
        key=lambda each: (each.module_path, each.start_pos, each.operator_name, each.occurrence),
    )


def type_spans(source: str) -> Iterator[Span]:
    """Yields the spans of types in a module, of decorators without an effect, and of `slots`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "TypeAlias":
            yield _span(node)
        for place in ("annotation", "returns"):
            if isinstance(annotation := getattr(node, place, None), ast.expr):
                yield _span(annotation)
        for decorator in getattr(node, "decorator_list", ()):
            name = ast.unparse(decorator)
            if name in WITHOUT_EFFECT or name.startswith("cython."):
                yield (decorator.lineno, 0), (decorator.lineno + 1, 0)
            for keyword in getattr(decorator, "keywords", ()):
                if keyword.arg == "slots":
                    yield _span(keyword.value)


def _span(node: ast.expr | ast.stmt) -> Span:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
