"""Running a program under a profiler: the command line for the version that is installed, and its launch.

The invariant: nothing here loads pandas, click or SQLite; what a version knows is asked of the tool itself.
"""
