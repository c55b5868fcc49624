"""The join against a second, slow opinion: `brute` says what is true, `programs` makes things up to ask it."""
