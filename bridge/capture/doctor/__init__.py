"""Say what is installed, whether annotations are recorded here, and which known traps are set."""
