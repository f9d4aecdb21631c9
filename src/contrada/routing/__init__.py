"""Content-based routing: messages, the poset, registrations, and the `Router`.

Everything here is a pure state machine: events and the time are inputs, effects are outputs. The
embedded service, the broker and the simulator share it.

Source: PODC 2000 §4 (architectures and processing strategies).
"""
