"""Files of settings are read as they are meant, or refused with file, key, found and expected."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest

from contrada.errors import InputError
from contrada.service.settings import checked, read_toml


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Inner(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    to: str
    cost: int = 1
    colour: Colour = Colour.RED


class Outer(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    port: Annotated[int, msgspec.Meta(ge=0, le=9)] = 0
    kind: Literal["a", "b"] = "a"
    inner: list[str | Inner] = []
    only: Inner | None = None


def test_what_fits_is_taken() -> None:
    """A file would say one thing and mean another."""
    found = {"port": 3, "inner": ["x", {"to": "y", "colour": "blue"}]}
    assert checked("f", found, Outer) == Outer(3, inner=["x", Inner("y", colour=Colour.BLUE)])


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"port": "3"}, "f: port: found '3', expected int"),
        ({"port": 10}, "f: port: found 10, expected int <= 9"),
        ({"kind": "c"}, "f: kind: found 'c', expected one of: a, b"),
        (
            {"prot": 1},
            "f: found the key prot (did you mean port?), expected one of: port, kind, inner, only",
        ),
        ({"inner": 5}, "f: inner: found 5, expected array"),
        ({"inner": [5]}, "f: inner[0]: found 5, expected str | table"),
        ({"inner": [{}]}, "f: inner[0]: the key to is missing"),
        ({"inner": ["a", {"to": "b", "cost": 1.5}]}, "f: inner[1].cost: found 1.5, expected int"),
        ({"inner": [{"x": 1}]}, "f: inner[0]: found the key x, expected one of: to, cost, colour"),
        ({"only": {"to": "x", "colour": 5}}, "f: only.colour: found 5, expected one of: red, blue"),
        ({"only": {"y": 5}}, "f: only: found the key y, expected one of: to, cost, colour"),
        ({"port": "x" * 100}, f"f: port: found '{'x' * 78}…, expected int"),
    ],
)
def test_what_does_not_fit_is_named(found: Any, said: str) -> None:
    """A person would have to read the whole file, and the manual."""
    with pytest.raises(InputError) as refused:
        checked("f", found, Outer)
    assert str(refused.value) == said


def test_what_is_no_toml_is_refused_with_its_place(tmp_path: Path) -> None:
    """A person would look for the fault in the values."""
    path = tmp_path / "f.toml"
    path.write_text('a = 1\nb = "x\n')
    with pytest.raises(InputError, match=r"f\.toml:2:7: "):
        read_toml(path)
    path.write_text("a = 1\nb = x\n")
    with pytest.raises(InputError, match=r"f\.toml:2:5: Invalid value: expected text in quotes, "):
        read_toml(path)
    path.write_text("a = 1\n= x\n")
    with pytest.raises(InputError, match=r"f\.toml:2:1: Invalid statement: expected a key and "):
        read_toml(path)
    with pytest.raises(InputError, match=r"none\.toml: "):
        read_toml(tmp_path / "none.toml")
