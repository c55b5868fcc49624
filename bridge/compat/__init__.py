"""The APIs of four other profilers, for programs that were written for them.

Nothing here records or emits by itself; everything uses the public functions of `bridge`.
"""
