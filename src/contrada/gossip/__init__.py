"""Dissemination by gossip: the participants of a group forward events to random others.

Nothing here but `udp` opens a socket, reads a clock or draws a random number. Source: EPFL 2503 §6.
"""
