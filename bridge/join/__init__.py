"""Attribute every activity to an op: arrays in, arrays out, without files, SQL or output."""
