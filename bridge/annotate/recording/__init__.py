"""Recordings of an annotated process: details of its calls and, in a session, host times."""
