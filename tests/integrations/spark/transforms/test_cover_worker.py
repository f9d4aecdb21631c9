"""The worker's part of `covering`: forms, merging, places, examples, order."""

import itertools
import random

import pytest

from contrada.integrations.spark.transforms import cover_worker
from contrada.integrations.spark.transforms.cover_worker import Examples, Shard, Verdict
from contrada.model import Filter, FilterSet, Notification
from contrada.model.algebra.attributes import values_in
from contrada.model.algebra.relations import covers, equal
from contrada.model.algebra.sets import lt
from contrada.model.algebra.value_set import of_cuts
from contrada.model.languages.atoms import Atom
from contrada.model.languages.language import Literal

TEXTS = (
    "price < 5",
    "price < 9 and symbol = 'A'",
    "price >= 1 and price < 7 and symbol in ('A', 'B')",
    "symbol = 'A'",
    "symbol prefix 'A'",
    "symbol contains 'A'",
    "price = 3",
    "price absent",
    "@publisher = 'p' and price < 3",
    "at < @2020-01-01T00:00:00Z",
    "everything",
)
FILTERS = [Filter(text) for text in TEXTS]


def some_filters(count: int) -> list[Filter]:
    """Returns ranges, values and prefixes of few attributes, so that many cover others."""
    chance = random.Random(7)
    found = []
    for _ in range(count):
        parts = []
        for name in chance.sample("abcd", chance.randint(1, 3)):
            low = chance.randrange(10)
            parts.append(
                chance.choice(
                    (
                        f"{name} = {low}",
                        f"{name} >= {low} and {name} < {low + chance.randint(1, 5)}",
                        f"{name} > {low}",
                        f"{name} prefix '{'xy'[low % 2] * (1 + low % 3)}'",
                        f"{name} contains 'x'",
                    )
                )
            )
        found.append(Filter(" and ".join(parts)))
    return found


def verdicts(filed: list[Filter], asked: list[Filter] | None = None) -> list[Verdict]:
    """Returns the verdicts of one shard on filters, by default its own."""
    shard = Shard(strictly=True)
    mine, others = map(examples, (filed, filed if asked is None else asked))
    return [*shard.file(mine), *shard.look_up(others)]


def examples(filters: list[Filter]) -> Examples:
    return Examples.of(cover_worker.form_of(each.sides) for each in filters)


@pytest.mark.parametrize("text", TEXTS)
def test_forms_round_trip(text: str) -> None:
    """A filter would change on its way."""
    of = Filter(text)
    assert cover_worker.filter_of(cover_worker.form_of(of.sides)) == of


def test_equal_names_give_equal_forms() -> None:
    """Interned names would differ in bytes, and equal filters not be united."""
    one, other = Filter({"price": 5}), Filter({"pri" + "ce"[:2]: 5.0})
    assert cover_worker.form_of(one.sides) == cover_worker.form_of(other.sides)


def test_a_coverer_is_filed_where_one_is_looked_up() -> None:
    """Filters and their coverers would never meet in a shard."""
    filters = FILTERS + some_filters(60)
    for one, other in itertools.product(filters, filters):
        if covers(one, other):
            filed = cover_worker.filing_places(one.sides, {})
            assert set(filed) & set(cover_worker.lookup_places(other.sides)), (one, other)


def test_a_filter_matches_its_examples() -> None:
    """Its coverers would not be found by them."""
    for each in FILTERS + some_filters(60):
        for span in cover_worker.examples_of(each.sides):
            if span is not None:
                assert each.matches(Notification(values_in(span))), each


def test_merging_keeps_the_union_and_the_least_key() -> None:
    """Filters that differ in one set would stay apart, or others merge."""
    texts = ["a = 1 and b = 1", "a = 2 and b = 1", "a < 3 and b = 2", "a = 1", "b contains 'x'"]
    members = [(number, dict(Filter(text).sides)) for number, text in enumerate(texts)]
    left = cover_worker.merge(members)
    assert len(left) == 4
    assert (0, "a in (1, 2) and b = 1") in [(key, str(Filter.of_sets(s))) for key, s in left]
    assert equal(FilterSet(texts), FilterSet(Filter.of_sets(sets) for _, sets in left))


def test_few_operators_on_text_merge_and_many_do_not() -> None:
    """Large unions of text operators would slow every decision."""
    few = ["a = 1 and b contains 'x'", "a = 1 and b suffix 'y'", "a = 1 and b < 3"]
    many = [f"a = 2 and b contains '{letter}'" for letter in "abcdefghi"]
    more = ["a = 2 and b < 1", "a = 2 and b > 5"]
    texts = few + many + more
    left = cover_worker.merge([(key, dict(Filter(text).sides)) for key, text in enumerate(texts)])
    assert len(left) == 1 + len(many) + 1
    assert {key for key, _ in left} == {0, *range(3, 3 + len(many) + 1)}
    (first,) = (Filter.of_sets(sets) for key, sets in left if key == 0)
    assert equal(first, FilterSet(few))
    assert equal(FilterSet(texts), FilterSet(Filter.of_sets(sets) for _, sets in left))


def test_mergeable_filters_share_a_cluster() -> None:
    """Filters that differ in one set would never meet."""
    one, other = Filter("a = 1 and b = 1 and c = 1"), Filter("a = 2 and b = 1 and c = 1")
    assert cover_worker.cluster_of(one.sides, first=False) == cover_worker.cluster_of(
        other.sides, first=False
    )
    assert cover_worker.cluster_of(one.sides, first=True) != cover_worker.cluster_of(
        other.sides, first=True
    )


def test_a_shard_finds_exactly_the_covered_filters() -> None:
    """The result would differ from all pairs, or name a dropped coverer."""
    filters = list(
        {cover_worker.form_of(f.sides): f for f in FILTERS[:-1] + some_filters(150)}.values()
    )
    found = {verdict.form: verdict.by for verdict in verdicts(filters)}
    for each in filters:
        form = cover_worker.form_of(each.sides)
        is_covered = any(
            covers(other, each) and not covers(each, other) for other in filters if other != each
        )
        assert (found.get(form) is not None) == is_covered, each
        if is_covered:
            by = cover_worker.filter_of(found[form])
            assert covers(by, each)


def test_parts_find_what_a_few_cover(monkeypatch: pytest.MonkeyPatch) -> None:
    """Covered filters of a part would be missed, or an uncovered part be costly."""
    monkeypatch.setattr(cover_worker, "PROBED_MAX", 20)
    monkeypatch.setattr(cover_worker, "_FILED_FIRST", 8)
    filters = {cover_worker.form_of(f.sides): f for f in some_filters(300)}
    forms = list(filters)
    told = list(cover_worker.covered_by_few(forms[:200], [forms[:70], forms[70:]]))
    found = {verdict.form: verdict.by for verdict in told}
    assert len(found) == len(told)
    for form, each in filters.items():
        few = [filters[other] for other in forms[:200] if other != form]
        assert (form in found) == any(covers(o, each) and not covers(each, o) for o in few)
        if form in found:
            assert covers(cover_worker.filter_of(found[form] or b""), each)
    apart = [cover_worker.form_of(Filter({"a": number}).sides) for number in range(100)]
    wide = cover_worker.form_of(Filter("a < 1").sides)
    assert not list(cover_worker.covered_by_few([wide], [apart]))
    assert [each.form for each in cover_worker.covered_by_few([wide], [apart[:1], apart[1:]])] == [
        apart[0]
    ]


def test_filters_are_filed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coverers within one piece would be missed."""
    monkeypatch.setattr(cover_worker, "_FILED_FIRST", 1)
    nested = [Filter({"a": number, "b": lt(9 - number)}) for number in range(9)]
    wide = [Filter({"b": lt(20)}), Filter({"b": lt(19)})]
    shard = Shard(strictly=True)
    dropped = list(shard.file(examples([*nested, *wide])))
    by = {cover_worker.form_of(wide[0].sides)}
    assert {verdict.by for verdict in dropped} == by
    assert len(dropped) == len(nested) + 1
    assert not list(shard.file(examples(nested)))
    assert not list(shard.look_up(examples(nested)))


def test_of_equal_filters_one_stays() -> None:
    """Equal sets in different forms would drop each other."""
    one, other = Filter("a contains 'xx' and a contains 'x'"), Filter("a contains 'xx'")
    assert equal(one, other)
    assert cover_worker.form_of(one.sides) != cover_worker.form_of(other.sides)
    together = verdicts([one, other])
    apart = verdicts([one], [other]) + verdicts([other], [one])
    assert len({verdict.form for verdict in together}) == 1
    assert len({verdict.form for verdict in apart}) == 1


def test_undecidable_filters_stay() -> None:
    """An unknown operator would cover filters, silently."""
    unknown = Filter.of_sets({"a": of_cuts((), Literal(Atom("nobody.knows", b"x"), True))})
    known = Filter("a = 'x' and b = 1")
    assert Verdict(cover_worker.form_of(known.sides), None) in verdicts([unknown, known])
    assert all(verdict.by is None for verdict in verdicts([unknown, known]))
