"""Tests of tables by any dimensions."""
