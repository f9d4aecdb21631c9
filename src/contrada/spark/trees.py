"""Documents that Spark's own XML reader has read, as the trees that our parser would give.

Spark's `xml` format reads a whole document as one VARIANT, with every leaf a text (no types are
guessed), attributes and texts under names that no element can have. That is all a tree holds.

Where the two parsers could differ, the document is left to ours: `spark_root` looks at a
document first and names its root only when it is plain (UTF-8, no document type, one root,
nothing behind it, not too large for a VARIANT), and `tree_of` gives None where namespaces are
not bound one to one. Spark's reader gives nothing for a document that is not well formed; then
ours says what is wrong and reads the entries that are whole.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from contrada.xml import DOCUMENT_DEPTH_MAX, Element
from contrada.xml.tree import XML_NAMESPACE, children_by_name, own_texts

ATTRIBUTE_PREFIX: Final = "@"
TEXT_NAME: Final = "#text"

SPARK_DOCUMENT_BYTES_MAX: Final = 8 * 2**20
"""Bytes of a document that Spark's `xml` reads; a VARIANT has 16 MiB at most. Beyond it: the plain
reader reads it."""

_HEAD: Final = re.compile(
    rb"(?:<\?xml\s([^>]*)\?>)?\s*(?:(?:<!--.*?-->|<\?.*?\?>)\s*)*<([A-Za-z_][A-Za-z0-9_.:-]*)[\s/>]",
    re.DOTALL,
)
# Spark's reader drops text behind a processing instruction and cuts text at a comment.
_COMMENT_IN_TEXT: Final = re.compile(rb"[^>\s]\s*<!--|-->\s*[^<\s]")
_UTF_8: Final = re.compile(rb"""encoding\s*=\s*["']utf-8["']""", re.IGNORECASE)
_NAME: Final = re.compile(r"[^\W\d][\w.-]*")
_XMLNS: Final = f"{ATTRIBUTE_PREFIX}xmlns"

Scope: TypeAlias = Mapping[str, str]
"""The namespaces in force, by prefix; the default one under the empty prefix."""


def spark_root(path: Path) -> str | None:
    """The name of a document's root when Spark can be trusted with it, else None."""
    try:
        if path.stat().st_size > SPARK_DOCUMENT_BYTES_MAX or path.suffix == ".gz":
            return None
        data = path.read_bytes()
        data.decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    head = _HEAD.match(data)
    if head is None or b"<!DOCTYPE" in data:
        return None
    declaration, root = head.group(1) or b"", head.group(2)
    if b"1.1" in declaration or (b"encoding" in declaration and not _UTF_8.search(declaration)):
        return None
    if data.find(b"<?", head.end()) >= 0 or _COMMENT_IN_TEXT.search(data, head.end()):
        return None
    ends = data.count(b"</" + root) == 1 and data.rstrip().endswith(b"</" + root + b">")
    return root.decode() if ends else None


def tree_of(root: str, text: str | None) -> Element | None:
    """The tree of a document that Spark has read, as JSON; None where our parser must decide."""
    if text is None:
        return None
    try:
        return _element(root, json.loads(text), {"xml": XML_NAMESPACE}, 1)
    except _UnsureError:
        return None


class _UnsureError(Exception):
    """Our own parser might say something else."""


def _element(name: str, content: Any, outer: Scope, depth: int) -> Element:
    if depth > DOCUMENT_DEPTH_MAX:
        raise _UnsureError
    if not isinstance(content, dict):
        _check_prefix(name, outer)
        return Element(name, texts=own_texts(_pieces(content)))
    scope = _scope(content, outer)
    _check_prefix(name, scope)
    attributes: dict[str, str] = {}
    texts: tuple[str, ...] = ()
    children: list[Element] = []
    for key, value in content.items():
        if key == TEXT_NAME:
            texts = own_texts(_pieces(value))
        elif key[0] != ATTRIBUTE_PREFIX:
            members = value if isinstance(value, list) else [value]
            children += [_element(key, member, scope, depth + 1) for member in members]
        elif not _is_namespace(key):
            _check_attribute(key[1:], scope)
            attributes[key[1:]] = value or ""
    named = [(key, *own_texts([attributes[key]])) for key in sorted(attributes)]
    return Element(
        name,
        tuple((pair[0], pair[1]) for pair in named if len(pair) > 1),
        texts,
        children_by_name(children),
    )


def _pieces(value: Any) -> list[str | None]:
    return value if isinstance(value, list) else [value]


def _is_namespace(key: str) -> bool:
    return key == _XMLNS or key.startswith(f"{_XMLNS}:")


def _scope(content: Mapping[str, Any], outer: Scope) -> Scope:
    declared = {
        key.removeprefix(_XMLNS).removeprefix(":"): value or ""
        for key, value in content.items()
        if _is_namespace(key)
    }
    return {**outer, **declared} if declared else outer


def _check_prefix(name: str, scope: Scope) -> None:
    prefix, colon, local = name.partition(":")
    if colon and (not scope.get(prefix) or not _NAME.fullmatch(local)):
        raise _UnsureError


def _check_attribute(name: str, scope: Scope) -> None:
    """Refuse an attribute whose namespace has several prefixes: which is shown is not ours."""
    _check_prefix(name, scope)
    prefix, colon, _ = name.partition(":")
    if colon and prefix != "xml":
        bound = [other for other, uri in scope.items() if other and uri == scope[prefix]]
        if len(bound) > 1:
            raise _UnsureError
