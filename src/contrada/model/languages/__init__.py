"""Sets of texts: Boolean expressions over intervals and atoms, automata, and decisions."""
