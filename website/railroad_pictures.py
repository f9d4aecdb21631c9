"""Railroad pictures of the productions in the blocks `ebnf` of a page.

A production is `name: …` with "literals", /expressions/, names, groups in parentheses or brackets,
`|`, and `?`, `*`, `+` behind an item.

    python -m website.railroad_pictures FOLDER    # of pages, which it changes
"""

import io
import re
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any, Final

import railroad

_BLOCK: Final = re.compile(r"^```ebnf\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
_PRODUCTION: Final = re.compile(r"^(\w+):(.*(?:\n[ \t].*)*)", re.MULTILINE)
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<literal>\"(?:[^\"\\]|\\.)*\")|(?P<regex>/(?:[^/\\]|\\.)+/)|(?P<name>\w+)|(?P<sign>[()\[\]|?*+]))"
)


def with_pictures(markdown: str) -> str:
    """Returns a page with a picture below each production of its blocks."""
    return _BLOCK.sub(lambda block: block[0] + "\n" + "".join(_pictures(block[1])), markdown)


def _pictures(text: str) -> Iterator[str]:
    for name, body in _PRODUCTION.findall(text):
        shown = Production(body).picture()
        written = io.StringIO()
        railroad.Diagram(shown).writeSvg(written.write)
        title = f'<p id="{name}"><code>{escape(name)}</code></p>'
        yield f'<div class="production">{title}{written.getvalue()}</div>\n\n'.replace("\n\n", "\n")


class Production:
    """Reads the right side of a production. Raises ValueError."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._at = 0

    def picture(self) -> Any:
        """Returns the picture of the whole text."""
        shown = self._choice()
        if self._at < len(self._tokens):
            raise ValueError(f"unexpected {self._tokens[self._at][1]!r} in a production")
        return shown

    def _choice(self) -> Any:
        parts = [self._sequence()]
        while self._take("|"):
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else railroad.Choice(0, *parts)

    def _sequence(self) -> Any:
        items: list[Any] = []
        while self._at < len(self._tokens) and self._tokens[self._at][1] not in {"|", ")", "]"}:
            items.append(self._repeated())
        return items[0] if len(items) == 1 else railroad.Sequence(*items)

    def _repeated(self) -> Any:
        item = self._item()
        if self._take("?"):
            return railroad.Optional(item)
        if self._take("*"):
            return railroad.ZeroOrMore(item)
        return railroad.OneOrMore(item) if self._take("+") else item

    def _item(self) -> Any:
        kind, text = self._tokens[self._at]
        self._at += 1
        if kind in {"literal", "regex"}:
            return railroad.Terminal(text[1:-1] if kind == "literal" else text)
        if kind == "name":
            return railroad.NonTerminal(text, href=f"#{text}")
        inner = self._choice()
        if not self._take(")" if text == "(" else "]"):
            raise ValueError(f"{text!r} is not closed in a production")
        return railroad.Optional(inner) if text == "[" else inner

    def _take(self, sign: str) -> bool:
        found = self._at < len(self._tokens) and self._tokens[self._at] == ("sign", sign)
        self._at += found
        return found


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at, text = 0, text.rstrip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None or found.lastgroup is None:
            raise ValueError(f"cannot read {text[at:]!r} in a production")
        yield found.lastgroup, found[found.lastgroup]
        at = found.end()


if __name__ == "__main__":
    for page in Path(sys.argv[1]).glob("*.md"):
        text = page.read_text("utf-8")
        if "```ebnf" in text:
            page.write_text(with_pictures(text), "utf-8")
