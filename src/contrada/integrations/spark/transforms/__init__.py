"""Transforms of frames, for `DataFrame.transform`. They work through Spark Connect, too."""
