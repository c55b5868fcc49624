"""The faces of four older profilers over sessions and annotations, so that programs written for them run.

The invariant: nothing here records or emits; all of it goes through what `bridge` offers everybody.
"""
