"""YAML within bounds."""

import tracemalloc
from itertools import islice

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from contrada.errors import LimitError, RefusedRuleError
from contrada.integrations.dialects import yaml_documents
from contrada.integrations.dialects.yaml_documents import Document


def read(text: str) -> list[Document]:
    """The documents of a text; raises the error of a refused one."""
    found: list[Document] = []
    for each in yaml_documents.documents("sigma", text):
        if isinstance(each, RefusedRuleError):
            raise each
        found.append(each)
    return found


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S")), max_size=8),
    st.sampled_from(
        ("yes", "~", "", "0x10", "1:30", "2021-01-01", "<<", "*a", "&a", "null", "1_0")
    ),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=10,
)


@given(st.lists(VALUES, max_size=3), st.booleans())
def test_written_conditions_are_read(values: list[Document], flow: bool) -> None:
    """If it failed, rules would be read with other values than they hold."""
    text = yaml.safe_dump_all(values, default_flow_style=flow)
    assert read(text) == values


def test_plain_scalars_are_as_other_tools_read_them_but_dates() -> None:
    """A rule would compare with another value than in its own tool."""
    assert read("[yes, 0x10, 010, 1:30, ~, '', 1.5, .inf, 1_000, abc, 'yes', 2021-01-01]") == [
        [True, 16, 8, 90, None, "", 1.5, float("inf"), 1000, "abc", "yes", "2021-01-01"]
    ]


def test_aliases_equal_their_anchors() -> None:
    """If it failed, rules with aliases would lose parts."""
    assert read("a: &x [1, 2]\nb: *x\nc: [*x]") == [{"a": [1, 2], "b": [1, 2], "c": [[1, 2]]}]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: 1\na: 2", yaml_documents.UNUSUAL_YAML),
        ("? [a]\n: 1", yaml_documents.UNUSUAL_YAML),
        ("a: !!python/object:os.system x", yaml_documents.UNUSUAL_YAML),
        ("a: !!binary x", yaml_documents.UNUSUAL_YAML),
        ("a: &a [*a]", yaml_documents.UNUSUAL_YAML),
        ("a: *b", yaml_documents.UNUSUAL_YAML),
        ("a: &x {b: 1}\nc: {<<: *x}", yaml_documents.UNUSUAL_YAML),
        ("- &x 1\n---\n- *x", yaml_documents.UNUSUAL_YAML),
        ("a: " + "1" * 10_000, yaml_documents.UNUSUAL_YAML),
        ("a: [", yaml_documents.NOT_YAML),
        ("a: \x00", yaml_documents.NOT_YAML),
        ("a: \ud800", yaml_documents.NOT_YAML),
        ('a: "\\ud800"', yaml_documents.NOT_YAML),
    ],
)
def test_unusual_yaml_is_refused(text: str, reason: str) -> None:
    """If it failed, a rule would be read in a way that its writer could not foresee."""
    with pytest.raises(RefusedRuleError) as refused:
        read(text)
    assert refused.value.reason == reason


def test_documents_behind_one_that_is_refused_are_read() -> None:
    """One rule would lose all rules behind it in its file."""
    first, second, third = yaml_documents.documents("sigma", "a: [{b: !c 1}, [2]]\n---\nd\n---\n*e")
    assert isinstance(first, RefusedRuleError)
    assert second == "d"
    assert isinstance(third, RefusedRuleError)


LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 20)
)


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        (LAUGHS, "ALIASED_NODES_MAX"),
        ("&a [" + "x, " * 3_000 + "]: 1", ""),
        ("a: &a [" + "x, " * 3_000 + "]\nb: [" + "*a, " * 1_000_000 + "]", "ALIASED_NODES_MAX"),
        (
            "a: &a [" + "x, " * 1_000 + "]\n" + "".join(f"b{n}: *a\n" for n in range(60)),
            "ALIASED_NODES_MAX",
        ),
        ("a: &a x\nb: [" + "*a, " * 50_001 + "]", "ALIASED_NODES_MAX"),
        ("[" + "x, " * yaml_documents.NODES_MAX + "]", "NODES_MAX"),
        ("a:\n" + "- x\n" * yaml_documents.NODES_MAX, "NODES_MAX"),
        (("a: &a x\nb: [" + "*a, " * 30_000 + "]\n---\n") * 2, "ALIASED_NODES_MAX"),
        ("a: " * 100, ""),
        ("[" * 60, "DOCUMENT_NESTING_MAX"),
        ("- " * 1_000_000, "DOCUMENT_NESTING_MAX"),
        ("x" * (yaml_documents.DOCUMENTS_CHARACTERS_MAX + 1), "DOCUMENTS_CHARACTERS_MAX"),
    ],
)
@pytest.mark.timeout(10)
def test_hostile_yaml_is_refused(text: str, limit: str) -> None:
    """If it failed, a small file could fill the memory, or end the process."""
    with pytest.raises((LimitError, RefusedRuleError)) as refused:
        read(text)
    assert getattr(refused.value, "limit", "") == limit


@pytest.mark.slow
def test_a_large_text_is_read_document_by_document() -> None:
    """If it failed, a file of many rules would be refused, or be in memory as a whole."""
    text = "---\na: [1, x]\n" * yaml_documents.NODES_MAX
    tracemalloc.start()
    found = yaml_documents.documents("sigma", text)
    assert sum(document == {"a": [1, "x"]} for document in islice(found, 20_000)) == 20_000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * len(text)
