"""`format("contrada")`: reads subscriptions as frames and publishes frames, in batch and as
streams.

Importing this name alone needs neither PySpark nor PyArrow. Spark finds the data source by itself
through the installed package `pyspark_contrada`.
"""
