"""Nsight Systems: SQLite exports, and .nsys-rep files through the installed nsys."""
