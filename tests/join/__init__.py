"""The join against its witness: `programs` and `trainings` make things up to ask it."""
