"""Mutants of real inputs: what is no longer sound is refused in one line or read with an accounting that adds up."""
