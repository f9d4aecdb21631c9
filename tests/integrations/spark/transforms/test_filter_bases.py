"""Bases: built once, reused, shipped; errors of workers that cannot open them."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from contrada import Filter, to_msgpack
from contrada.errors import InputError, MissingRequirementError
from contrada.integrations.dialects import cesql
from contrada.integrations.spark import Base, match
from contrada.integrations.spark.transforms import filter_bases, worker_code
from contrada.integrations.spark.transforms.filter_bases import OpenBase
from contrada.integrations.spark.transforms.packed_rows import WorkerSetup, key_lists
from contrada.integrations.spark.transforms.worker_code import for_worker
from contrada.matching.index import Index

WISHES = {"b": "size > 3", "a": "size > 1 or text = 'x'"}


def test_a_base_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A million filters would be indexed for each run."""
    base = Base(WISHES, folder=tmp_path)
    monkeypatch.setattr(Index, "add", None)
    assert (
        Base(
            {key: Filter(WISHES[key]) if key == "b" else WISHES[key] for key in WISHES},
            folder=tmp_path,
        ).digest
        == base.digest
    )
    assert Base.load(base.digest, folder=tmp_path).keys() == ["b", "a"]
    with pytest.raises(TypeError):
        Base({**WISHES, "c": "size = 9"}, folder=tmp_path)


def test_a_missing_base_is_refused(tmp_path: Path) -> None:
    """A worker would look for missing files."""
    with pytest.raises(InputError, match="has no base of the digest 00"):
        Base.load("00", folder=tmp_path)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "found keys of none"),
        ({"a": "size = 1", 2: "size = 2"}, "found keys of int, str, expected texts, or integers"),
        ({True: "size = 1"}, "found keys of bool"),
        ({"a": "size ="}, "the subscription 'a': line 1"),
        ({"a": b"\x00"}, "the subscription 'a'"),
        (3, "found 3, expected a mapping"),
    ],
)
def test_malformed_bases_are_refused(given: object, said: str, tmp_path: Path) -> None:
    """An error would be raised in a lower layer, or in a worker."""
    with pytest.raises(InputError, match=said):
        Base(given, folder=tmp_path)  # type: ignore[arg-type]


def test_bases_of_frames_and_files(spark: SparkSession, tmp_path: Path) -> None:
    """The same subscriptions from another input would be another base."""
    base = Base(WISHES, folder=tmp_path)
    file = tmp_path / "all.filters"
    file.write_text("".join(f"{key}: {wish}\n" for key, wish in WISHES.items()))
    texts = spark.createDataFrame(list(WISHES.items()), "key string, filter string").coalesce(1)
    packed = [(key, to_msgpack(base.interests[key])) for key in WISHES] if base.interests else []
    binary = spark.createDataFrame(packed, "key string, filter binary").coalesce(1)
    for given in (file, texts, binary):
        assert Base(given, folder=tmp_path).digest == base.digest
    twice = texts.union(texts)
    with pytest.raises(InputError, match="there twice"):
        Base(twice, folder=tmp_path)


def test_integers_are_keys(spark: SparkSession, tmp_path: Path) -> None:
    """Integer keys would become texts."""
    base = Base({2**40: "size > 1", -1: "size > 3"}, folder=tmp_path)
    frame = spark.createDataFrame([(5,), (2,)], "size int")
    for way in ("index", "predicates"):
        found = frame.transform(match(base, way=way))
        assert found.schema["subscriptions"].simpleString() == "subscriptions:array<bigint>"
        assert [row["subscriptions"] for row in found.collect()] == [[2**40, -1], [2**40]]


def test_rules_with_residues(spark: SparkSession, tmp_path: Path) -> None:
    """Residues would be ignored, or be missing in workers."""
    texts = ("size > other AND size > 1", "size = 5", "size + other = 5 OR size = 0")
    rules = {text: cesql.read(text) for text in texts}
    assert any(rule.residue_holds for rule in rules.values())
    given = [(5, 3), (1, 4), (0, 9), (None, 1)]
    frame = spark.createDataFrame(given, "size int, other int")
    found = frame.transform(match(Base(rules, folder=tmp_path))).collect()
    held = [
        {n: v for n, v in zip(("size", "other"), row, strict=True) if v is not None}
        for row in given
    ]
    assert [row["subscriptions"] for row in found] == [
        [key for key, rule in rules.items() if rule.matches(each)] for each in held
    ]


def test_a_worker_without_compiled_kernels_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Matching would be a hundred times slower, silently."""
    base = Base(WISHES, folder=tmp_path)
    monkeypatch.setattr(worker_code, "NATIVE", None)
    with pytest.raises(MissingRequirementError, match=r"compiled matching at this worker.*wheel"):
        OpenBase(base.saved)


def test_a_worker_without_the_package_says_so(tmp_path: Path) -> None:
    """The user would see a page of Python's import errors."""
    saved = Base(WISHES, folder=tmp_path).saved
    setup = WorkerSetup(saved, ("size",), ("integer",), None)
    pickled = cloudpickle.dumps(for_worker(partial(key_lists, setup)))
    program = (
        "import sys; sys.modules['contrada'] = None\n"
        "from pyspark import cloudpickle\n"
        "try: cloudpickle.loads(sys.stdin.buffer.read())([])\n"
        "except RuntimeError as error: print(error)"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], input=pickled, capture_output=True, check=True
    ).stdout.decode()
    assert said.count("\n") == 1
    assert "cannot import contrada" in said
    assert "install 'contrada[spark]' there" in said


def test_the_folder_is_among_the_users_caches(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Files would be left in an unexpected place."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Path(Base(WISHES).saved.folder) == tmp_path / "contrada" / "bases"


def test_the_cached_bases_of_a_worker_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few large bases would exhaust a worker's memory."""
    monkeypatch.setattr(filter_bases, "_bases", {})
    monkeypatch.setattr(filter_bases, "KEYS_KEPT_MAX", 5)
    made = [Base({n * 10 + at: "n = 1" for at in range(n)}, folder=tmp_path) for n in (2, 3, 4, 9)]
    kept = []
    for place in (0, 1, 0, 2, 3, 0):
        filter_bases.open_base(made[place].saved)
        kept.append([len(each.keys) for each in filter_bases._bases.values()])
    assert kept == [[2], [2, 3], [3, 2], [4], [9], [2]]
    monkeypatch.setattr(filter_bases, "KEYS_KEPT_MAX", 1_000)
    monkeypatch.setattr(filter_bases, "BASES_KEPT_MAX", 2)
    for each in made:
        filter_bases.open_base(each.saved)
    assert [len(each.keys) for each in filter_bases._bases.values()] == [4, 9]
