"""Transforms: what makes a DataFrame of another, for `DataFrame.transform`.

They use no more of PySpark than Spark Connect has, so that they are the same there.
"""
