"""Seeded worlds: a network of routers in virtual time, with faults, and what must hold of it.

A run is a pure function of its script, and a script of its seed. What a run does not hold is told
with the seed and the shortest script of steps found that shows it; a script can be run again.

Source: PODC 2000 §5 (simulation studies of architectures and processing strategies).
"""
