"""Transforms: functions from one DataFrame to another, for `DataFrame.transform`.

They use only the API of Spark Connect, so they work there, too.
"""
