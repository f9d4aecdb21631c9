"""Sets of texts: automata, expressions, wildcards, networks, folding, and deciding about them."""
