"""`DocumentLimits`: the bounds of documents, of patterns of names, and of tables of names."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentLimits:
    """Limits of the readers of documents, of `WildFilters`, and of a `NamingTable`."""

    entry_bytes_max: int = 16 * 2**20
    """Bytes of a document in pieces between the ends of two entries. Beyond it: the rest of the
    document is a bad record."""

    context_values_max: int = 1_000
    """Values that the elements around an entry add to it: more would square the work. Beyond it:
    the document is a bad record."""

    context_added_max: int = 1_000_000
    """Values that the elements around entries add in a document, besides one for each of its bytes:
    a small document could grow a thousandfold. Beyond it: the rest of the document is a bad record.
    """

    wild_filters_max: int = 1_000
    """Filters of a filter set after known names replace its patterns. Beyond it: LimitError; a
    subscription sends wider filters to the network, and decides the rest itself."""

    kinds_max: int = 1_024
    """Kinds of documents in a naming table. Beyond it: others are refused, counted."""

    kind_names_max: int = 16_384
    """Generated names of a kind in a naming table. Beyond it: others are refused, counted."""
