"""Witnesses: what is true of a profile, said a second time, that tables are compared with.

A witness is written from a definition (a page of docs/, a rule) without a look at the code under test, as plainly
as it can be said: records in lists, loops inside loops, one instant after the other. It may be slow; tests give it
small programs, and `indexed` looks up what is asked often. It imports nothing of the code that it judges,
and nothing but tests imports it. A definition that only one test needs stands in that test.

A tree or table of the code is put in the words of its witness beside the tests: `join.compare`, `flame.compare`.
"""
