"""`html_code` and `html_table`: how values of the model are shown in notebooks, as escaped HTML."""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

HTML_ROWS_MAX: Final = 200
"""Rows of a value that is shown in a notebook. Beyond it: a last row says that there are more."""

HTML_CHARACTERS_MAX: Final = 2_000
"""Characters of a text in such a row. Beyond it: it is cut, with `…`."""


def html_code(value: object) -> str:
    """Returns a value's text as code."""
    return f"<code>{_escaped(str(value))}</code>"


def html_table(head: Sequence[str], rows: Iterable[Sequence[object]], caption: object = "") -> str:
    """Returns a table; the caption is code."""
    remaining = iter(rows)
    shown = [
        "".join(f"<td>{_escaped(str(cell))}</td>" for cell in row)
        for row in islice(remaining, HTML_ROWS_MAX)
    ]
    if next(remaining, None) is not None:
        shown.append(f'<td colspan="{len(head)}">… and more</td>')
    title = f"<caption>{html_code(caption)}</caption>" if caption != "" else ""
    top = "".join(f"<th>{_escaped(each)}</th>" for each in head)
    body = "".join(f"<tr>{row}</tr>" for row in shown)
    return f"<table>{title}<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _escaped(text: str) -> str:
    from html import escape  # Only notebooks need it.

    cut = text if len(text) <= HTML_CHARACTERS_MAX else f"{text[:HTML_CHARACTERS_MAX]}…"
    return escape(cut)
