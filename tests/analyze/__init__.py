"""The tables against the same slow opinion."""
