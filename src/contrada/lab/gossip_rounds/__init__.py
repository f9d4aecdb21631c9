"""Groups that gossip, simulated: rounds over arrays, from a hundred participants to ten million.

Source: EPFL 2503 §6.5.3.
"""
