"""Dissemination by gossip: participants of a group infect one another with what is published.

Nobody is in charge and nobody knows all. `parameters` says what a group is like, `rounds` how long
something is gossiped, `analysis` what comes of it. Nothing here opens a socket, reads a clock or
draws a random number.

Source: EPFL 2503 §6.
"""
