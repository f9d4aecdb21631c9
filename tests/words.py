"""Rates of avoided words in docstrings, pages and the help of commands.

    python -m tests.words [PATH ...]    # worst files first, and the rates of all

A clause such as "what waits" in the place of a noun such as "the queue" is hard to read. The rates
of a few words show how often that happens. Limits are per 1,000 words.
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

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
_HELP: Final = {"help", "short_help", "epilog"}


def docstrings(path: Path) -> Iterator[str]:
    """The docstrings of a module: of its parts, and below its constants and fields."""
    tree = ast.parse(path.read_text("utf-8"), path)
    for node in ast.walk(tree):
        body = getattr(node, "body", ())
        for statement in body if isinstance(body, list) else ():
            match statement:
                case ast.Expr(ast.Constant(str(text))):
                    yield text
        if isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg in _HELP and isinstance(keyword.value, ast.Constant):
                    yield str(keyword.value.value)


def prose(path: Path) -> str:
    """The sentences of a page, or of the docstrings of a module, without code."""
    text = path.read_text("utf-8") if path.suffix == ".md" else "\n".join(docstrings(path))
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
