"""The tables of a report (``--by``): their definitions, columns and computation."""
