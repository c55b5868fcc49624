"""Simulated programs on GPUs whose truth is known."""
