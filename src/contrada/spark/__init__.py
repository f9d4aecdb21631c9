"""The pipeline on Spark: files to notifications, matched in Arrow batches.

Spark reads, splits and distributes. What a record means and which subscriptions it matches is
decided by the same functions as everywhere else (`contrada.records`, `contrada.matching`), so
that the answers are those of `contrada match`. This room needs the extra `contrada[spark]` and
a Java of at least 17; importing this name alone needs neither.
"""
