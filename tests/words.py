"""Rates of avoided words in docstrings, pages, comments, and texts such as errors and help.

    python -m tests.words [PATH ...]    # worst files first, and the rates of all

A clause such as "what waits" in the place of a noun such as "the queue" is hard to read. The rates
of a few words show how often that happens. Limits are per 1,000 words.
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

REPOSITORY: Final = Path(__file__).resolve().parents[1]

LIMITS: Final = {"what": 4.0, "who": 1.0, "told/said": 1.5, "come/go": 2.0, "stand": 0.7}
"""The most occurrences per 1,000 words."""

_COUNTED: Final = {
    "what": "what|whatever",
    "who": "who|whoever|whom|whose",
    "told/said": "told|tell|tells|telling|said|say|says|saying",
    "come/go": "come|comes|came|coming|go|goes|went|gone|going",
    "stand": "stand|stands|stood|standing",
}
_PATTERNS: Final = {
    name: re.compile(rf"\b(?:{words})\b", re.IGNORECASE) for name, words in _COUNTED.items()
}
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z'’-]*")
_CODE: Final = re.compile(r"^(```|~~~).*?^\1|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_COMMENT: Final = re.compile(r"(?:^|\s)#\s(.*)$", re.MULTILINE)
_HELP: Final = {"help", "short_help", "epilog"}


class Texts(NamedTuple):
    """The texts of a module: docstrings, also of constants and fields, with help; all others."""

    docstrings: list[str]
    messages: list[str]


@cache
def texts_of(path: Path) -> Texts:
    """Returns the texts of a module; messages, such as errors, have several words."""
    found = Texts([], [])
    seen: set[int] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"), path)):
        match node:
            case ast.Expr(ast.Constant(str(text)) as constant):
                found.docstrings.append(text)
                seen.add(id(constant))
            case ast.keyword(name, ast.Constant(str(text)) as constant) if name in _HELP:
                found.docstrings.append(text)
                seen.add(id(constant))
            case ast.Constant(str(text)) if " " in text.strip() and id(node) not in seen:
                found.messages.append(text)
    return found


def comments(path: Path) -> list[str]:
    """The comments of a module."""
    return _COMMENT.findall(path.read_text("utf-8"))


def prose(path: Path) -> str:
    """The sentences of a page, or of the docstrings of a module, without code."""
    text = path.read_text("utf-8") if path.suffix == ".md" else "\n".join(texts_of(path).docstrings)
    return _CODE.sub(" ", text)


def counted(texts: Iterable[str]) -> Counter[str]:
    """The words of texts, as `words`, and the avoided ones by the names of `LIMITS`."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts["words"] += len(_WORD.findall(text))
        for name, pattern in _PATTERNS.items():
            counts[name] += len(pattern.findall(text))
    return counts


def rates(counts: Counter[str]) -> dict[str, float]:
    """Occurrences per 1,000 words, by the names of `LIMITS`."""
    return {name: 1000 * counts[name] / max(counts["words"], 1) for name in LIMITS}


def files_below(paths: Iterable[Path]) -> list[Path]:
    """The modules and pages at or below paths."""
    found: list[Path] = []
    for path in paths:
        below = sorted(path.rglob("*")) if path.is_dir() else [path]
        found += [each for each in below if each.suffix in {".py", ".md"}]
    return found


def _main(arguments: list[str]) -> None:
    paths = [Path(each) for each in arguments] or [REPOSITORY / "src", REPOSITORY / "docs"]
    by_file = {path: counted([prose(path)]) for path in files_below(paths)}
    excess = {
        path: sum(max(0.0, counts[name] - LIMITS[name] * counts["words"] / 1000) for name in LIMITS)
        for path, counts in by_file.items()
    }
    for path in sorted(by_file, key=lambda each: -excess[each])[:40]:
        if excess[path] >= 1:
            shown = " ".join(f"{name} {n:.1f}" for name, n in rates(by_file[path]).items())
            sys.stdout.write(f"{path}: {by_file[path]['words']} words: {shown}\n")
    total: Counter[str] = sum(by_file.values(), Counter())
    sys.stdout.write(f"all: {total['words']} words: ")
    sys.stdout.write(" ".join(f"{name} {n:.2f}" for name, n in rates(total).items()) + "\n")


if __name__ == "__main__":
    _main(sys.argv[1:])
