"""Recordings: what annotated processes write of themselves, as reports or beside a profiler's."""
