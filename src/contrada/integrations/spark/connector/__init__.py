"""`format("contrada")`, which Spark finds through the installed package `pyspark_contrada`."""
