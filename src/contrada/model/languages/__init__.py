"""Sets of texts: automata, expressions, wildcards, networks, folding, and decisions about them.

A language is a Boolean expression over intervals of text and atoms, which are operators with their
constants. This layer has no values of other domains, and no attributes.
"""
