"""Transforms: functions from one DataFrame to another, for `DataFrame.transform`.

They use only the parts of PySpark that Spark Connect has, so that they work there, too.
"""
