"""`format("contrada")`: what brokers have as frames, and frames published, in batch and as streams.

Importing this name alone needs neither PySpark nor PyArrow. Spark finds the source by itself where
it finds the package `pyspark_contrada` that comes with this one.
"""
