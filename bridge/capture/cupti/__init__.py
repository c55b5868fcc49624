"""Capture by CUPTI in the process: kernels, copies, CUDA calls and the program's ranges, without nsys or root.

`capture` starts and stops it, `library` calls libcupti, `records` decodes what it hands over, `collector` does so in a
thread, `spool` keeps the records on disk while the program runs, `export` makes an SQLite report of them.
"""
