"""The real viewers that the traces are made for, driven without a network or a person."""
