"""Run a program under a profiler: the command line for the installed version, and the launch.

Nothing here loads pandas, click or SQLite. The options of a version are read from the help of the
tool.
"""
