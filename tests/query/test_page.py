"""Holds docs/query.md: its examples run, and give what their comments say."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "query.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_examples_give_what_they_say(number: int) -> None:
    """A reader would copy what does not run, or gives something else."""
    names: dict[str, Any] = {}
    exec(EXAMPLES[0], names)  # What all begin with.
    for line in EXAMPLES[number].splitlines():
        code, _, said = line.partition("  # ")
        if said:
            assert eval(code, names) == ast.literal_eval(said), line
        else:
            exec(code, names)
