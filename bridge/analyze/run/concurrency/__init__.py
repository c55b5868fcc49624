"""Analyse what ran at the same time: the use of each GPU, and communication that computation hides.

docs/communication.md defines every column.
"""
