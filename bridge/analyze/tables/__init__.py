"""The tables of a report (``--by``): which there are, what their rows and columns mean, and how they are made."""
