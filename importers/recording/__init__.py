"""Recordings of annotated processes, alone or beside the report of a profiler."""
