"""What the documentation takes from the code: `python -m tests.docs` writes it, tests compare it."""
