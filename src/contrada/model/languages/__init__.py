"""Sets of texts: automata, expressions, wildcards, networks, folding, and decisions about them.

A language is a Boolean expression over intervals of text and atoms, which are operators with their
constants. This layer has no values of other domains, and no attributes.
"""

from contrada.model.languages.atoms import Atom, Operator, atom_of, failures, implied_atom, registry
from contrada.model.languages.decision import safe_answers
from contrada.model.languages.language import Every, Language, Literal, Pieces, Some, atoms_of

__all__ = [
    "Atom",
    "Every",
    "Language",
    "Literal",
    "Operator",
    "Pieces",
    "Some",
    "atoms_of",
    "atom_of",
    "failures",
    "implied_atom",
    "registry",
    "safe_answers",
]
