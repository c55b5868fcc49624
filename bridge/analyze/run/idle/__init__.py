"""Why GPUs were idle: the walk back from their next work through the graph of the run.

docs/causes.md defines every cause.
"""
