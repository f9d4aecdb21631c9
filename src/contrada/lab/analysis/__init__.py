"""The effect of gossip by calculation: equations 6.1 to 6.36, on arrays.

Equations with misprints are in functions named accordingly.
Source: EPFL 2503 §6.2, §6.4.1, §6.5.2, §6.6.2, §6.6.3.
"""
