"""Values of seven domains, and the one line on which all of them lie.

`values` has keys, the places of values on the line; `line` has sets of keys.
"""
