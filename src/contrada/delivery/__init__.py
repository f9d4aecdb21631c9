"""Delivery guarantees: `DeliveryServer`, its durable subscriptions, and the stores of their logs.

`store` defines the guarantees of a store; `memory_store` is one with failures for tests. The store
on disk opens files, so it is in `service.stores`.
"""
