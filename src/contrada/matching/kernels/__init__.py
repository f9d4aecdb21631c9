"""Kernels: functions that Numba compiles, and the memory that they work on.

`schema` says what the arrays hold, `memory` what a kernel is. Of the kernels, `reading` brings a
notification into the scratch, `seeking` finds the buckets that it comes by, `holding` and
`checking` the filters there that match, and `updating` puts filters there. `jit` loads all.
"""
