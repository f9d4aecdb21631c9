"""Stylesheets: an XSLT that removes repetition from a document before the strategy.

A stylesheet cannot open files or addresses, neither at compile time nor at run time, and writes
nothing. The depth of its templates is bounded, its running time is not. So it must be a program of
the reader, never of the sender.

Source: Erenkrantz 2001 §6.3.
"""

from functools import lru_cache
from typing import Any, Final, NoReturn

from lxml import etree

from contrada.errors import InputError, ParseError
from contrada.integrations.documents.element_tree import safe_parser, syntax_error

STYLESHEETS_KEPT_MAX: Final = 16
"""Compiled stylesheets that are cached. Beyond it: the least recently used is compiled again."""

TEMPLATE_DEPTH_MAX: Final = 1_000
"""Levels of templates of a stylesheet. Beyond it: the document is a bad record."""


class _Refusing(etree.Resolver):
    """Opens nothing."""

    def resolve(self, system_url: str, public_id: str, *_: Any) -> NoReturn:
        raise InputError("stylesheet", f"it may open nothing, and asks for {system_url!r}")


@lru_cache(STYLESHEETS_KEPT_MAX)
def compiled(stylesheet: bytes) -> etree.XSLT:
    """Returns a compiled stylesheet. Raises InputError if it is invalid, or needs files."""
    parser = safe_parser()
    parser.resolvers.add(_Refusing())
    try:
        root = etree.fromstring(stylesheet, parser)
        xslt: Any = etree.XSLT
        xslt.set_global_max_depth(TEMPLATE_DEPTH_MAX)
        denying: Any = etree.XSLTAccessControl
        return etree.XSLT(root, access_control=denying.DENY_ALL)
    except etree.XMLSyntaxError as error:
        found = syntax_error(error)
        raise InputError("stylesheet", found.found, found.line, found.column) from None
    except (etree.XSLTParseError, ValueError) as error:
        raise InputError("stylesheet", str(error)) from None


def transformed(root: etree._Element, stylesheet: bytes) -> etree._Element:
    """Returns the root of the transformed document. Raises InputError and ParseError."""
    try:
        made = compiled(stylesheet)(root.getroottree()).getroot()
    except etree.XSLTApplyError as error:
        raise InputError("stylesheet", f"it fails on the document: {error}") from None
    if made is None:
        raise ParseError(1, 1, "no element", "one that the stylesheet makes of the document")
    return made
