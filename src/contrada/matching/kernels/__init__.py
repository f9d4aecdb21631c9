"""Kernels: functions that are compiled as `contrada._native`, and the memory that they work on.

`schema` lists the contents of the arrays, `memory` defines a kernel. `scratch` loads a notification
into the scratch, `bucket_lookup` finds its buckets, `evaluate` and `match` find the matching
filters there, and `update` assigns filters to buckets.
"""
