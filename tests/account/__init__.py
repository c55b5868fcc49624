"""How long a run lasts and what its GPUs do in it: one number for one thing, in all that is printed."""
