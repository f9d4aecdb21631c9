"""Other people's filters, read into ours: plain functions from text or parsed JSON and YAML.

Each dialect is a module of its own. What all share: conditions with `and`, `or` and `not`
become filter sets in `expression`; a rule that was read, and how a rule is refused, are in
`rules`. What cannot be said exactly as filters is kept as a residue that the dialect evaluates,
or refused with the reason; it is never changed in silence.
"""
