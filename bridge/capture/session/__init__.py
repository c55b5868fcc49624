"""Profile some steps of a program: which they are, what is called when, and what tools capture."""
