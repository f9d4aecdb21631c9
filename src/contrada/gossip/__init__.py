"""Dissemination by gossip: the participants of a group forward events to random others.

There is no coordinator, and no participant knows all others. `parameters` describes a group,
`rounds` the duration of gossip, `contrada.lab.analysis` its reliability. Nothing here opens a
socket, reads a clock or draws a random number.

Source: EPFL 2503 §6.
"""
