"""The loader of extensions by name and by entry points, and its failures."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import contrada as ct
from contrada.errors import ExtensionError
from contrada.model.extensions import BUILT_IN, load, load_entry_points
from contrada.model.extensions.extended_type import ENTRY_POINTS
from contrada.model.languages.atoms import registry

GOOD = """
import contrada as ct

class Longer(ct.ExtendedOperator):
    name = "longer"

    def apply(self, value, constant):
        return len(value) > int(constant)

class Shorter(ct.ExtendedOperator):
    name = "shorter"

    def apply(self, value, constant):
        return len(value) < int(constant)

class LengthType(ct.ExtendedType):
    name = "Length"

    def operators(self):
        return Longer(), Shorter()
"""

BAD = """
from contrada import ExtendedOperator, ExtendedType

NUMBER = 5

class Named(ExtendedOperator):
    def __init__(self, name):
        self.name = name

class NoType:
    pass

class NeedsArguments(ExtendedType):
    def __init__(self, size):
        self.size = size

class Silent(ExtendedType):
    name = "Silent"

class Raises(ExtendedType):
    def operators(self):
        return [1 / 0]

class NoOperator(ExtendedType):
    name = "NoOperator"

    def operators(self):
        return ["longer"]

class NoList(ExtendedType):
    def operators(self):
        return None

class Clash(ExtendedType):
    def operators(self):
        return Named("fresh"), Named("set~")

class Keyword(ExtendedType):
    def operators(self):
        return Named("fresh"), Named("within")

class Unreadable(ExtendedType):
    def operators(self):
        return Named("fresh"), Named("two words")
"""

Module = Callable[[str, str], None]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Module]:
    """Writes a module that can be imported, and counts as loaded, during the test."""
    before = set(sys.modules)
    # Else Spark's workers would have to load a missing file later.
    monkeypatch.setattr("contrada.model.extensions.extended_type._loaded", {})
    monkeypatch.syspath_prepend(str(tmp_path))
    yield lambda name, text: void((tmp_path / f"{name}.py").write_text(text))
    for name in set(sys.modules) - before:
        del sys.modules[name]


def void(_: object) -> None:
    """Nothing, of anything."""


def test_an_extension_is_loaded_by_name(module: Module) -> None:
    """`--extension module:Class` would not make its operators known."""
    module("lengths", GOOD)
    assert load("lengths:LengthType").name == "Length"
    f = ct.Filter("x longer '2' and x shorter '5'")
    assert f.matches(ct.Notification({"x": "abc"}))
    assert not f.matches(ct.Notification({"x": "abcde"}))
    assert ct.parse(str(f)) == f


def test_an_operator_knows_its_type(module: Module) -> None:
    """It would be unknown which extension brought an operator."""
    module("lengths", GOOD)
    loaded = load("lengths:LengthType")
    for name, kind in (("longer", loaded.name), ("set~", "Set"), ("unifies", "Unify")):
        operator = registry.get(name)
        assert isinstance(operator, ct.ExtendedOperator)
        assert operator.type is not None
        assert operator.type.name == kind


def test_loading_again_does_nothing_more(module: Module) -> None:
    """A second `--extension` of one name would end in an error, or move the indices."""
    module("lengths", GOOD)
    load("lengths:LengthType")
    indices = {name: registry.get(name).index for name in registry.names()}
    load("lengths:LengthType")
    assert {name: registry.get(name).index for name in registry.names()} == indices
    assert len(set(indices.values())) == len(indices)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "expected module:Class"),
        ("faulty", "expected module:Class"),
        (":Class", "expected module:Class"),
        ("faulty:", "expected module:Class"),
        ("no_such_module:Class", "module 'no_such_module' cannot be imported: ModuleNotFound"),
        ("..faulty:Class", "cannot be imported"),
        ("broken:Class", "module 'broken' cannot be imported: ZeroDivisionError"),
        ("faulty:Missing", "module 'faulty' has no class 'Missing'"),
        ("faulty:NUMBER", "'NUMBER' is not a subclass of ExtendedType"),
        ("faulty:NoType", "'NoType' is not a subclass of ExtendedType"),
        ("faulty:NeedsArguments", "its constructor failed: TypeError"),
        ("faulty:Silent", "its operators cannot be had: NotImplementedError"),
        ("faulty:Raises", "its operators cannot be had: ZeroDivisionError"),
        ("faulty:NoOperator", "'longer' is not an ExtendedOperator"),
        ("faulty:NoList", "its operators cannot be had: TypeError"),
        ("faulty:Clash", "an operator of this name is registered already"),
        ("faulty:Keyword", "this is a word of the text syntax"),
        ("faulty:Unreadable", "an operator's name is letters, digits"),
    ],
)
def test_faults_are_named(module: Module, name: str, reason: str) -> None:
    """An operator would read a traceback instead of a hint for the repair."""
    module("faulty", BAD)
    module("broken", "1 / 0")
    with pytest.raises(ExtensionError) as caught:
        load(name)
    assert reason in str(caught.value)
    assert registry.find("fresh") is None  # all operators of a type, or none


def test_packages_bring_extensions(module: Module, tmp_path: Path) -> None:
    """An installed package's entry points would be passed over."""
    module("lengths", GOOD)
    information = tmp_path / "lengths-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: lengths\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        f"[{ENTRY_POINTS}]\nLength = lengths:LengthType\n"
    )
    assert "Length" in [each.name for each in load_entry_points()]
    assert registry.find("longer") is not None


def test_the_built_in_extensions_are_there() -> None:
    """The reports' extensions would have to be loaded before a filter can name them."""
    for extended_type in BUILT_IN:
        for operator in extended_type.operators():
            assert registry.find(operator.name) is not None
    assert [each.name for each in BUILT_IN] == ["Set", "Unify", "Filter"]
