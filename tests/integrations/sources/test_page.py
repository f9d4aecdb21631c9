"""Holds docs/query.md: its examples run, and give the results in their comments."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).resolve().parents[3] / "docs" / "query.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_examples_give_their_results(number: int) -> None:
    """A reader would copy an example that fails, or gives another result."""
    names: dict[str, Any] = {}
    if "postgresql://" in EXAMPLES[number]:
        pytest.importorskip("psycopg", exc_type=ImportError)  # It may have no libpq.
    exec("from contrada import SourceQuery", names)  # An earlier one has it.
    code = ""
    for line in EXAMPLES[number].splitlines():
        expression, _, said = line.partition("  # ")
        if not said:
            code += line + "\n"
            continue
        exec(code, names)
        code = ""
        assert eval(expression, names) == ast.literal_eval(said), line
    exec(code, names)
