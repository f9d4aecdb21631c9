"""The content-based network: messages, the poset, ledgers, and one router core.

Everything here is a pure state machine: events and the time go in, effects come out. The embedded
service, the broker server and the simulator share it.

Source: PODC 2000 §4 (architectures and processing strategies).
"""
