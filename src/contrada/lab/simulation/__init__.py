"""Seeded worlds: a network of routers in virtual time, with faults, and the checks of a run.

A run is a pure function of its script, and a script of its seed. A failed check is reported with
the seed and the shortest failing script; a script can be run again.

Source: PODC 2000 §5 (simulation studies of architectures and processing strategies).
"""
