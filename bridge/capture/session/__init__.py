"""Sessions: profile selected steps of a program, and control what a tool captures."""
