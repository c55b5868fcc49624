"""Two processes write into one folder; their timelines become one."""

import os

from bridge.compat.megengine.profiler import Profiler, merge_trace_events, scope

child = os.fork()
with Profiler("merged") as profiler, scope("child" if child == 0 else "parent"):
    pass
profiler.dump()
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
merge_trace_events("merged")
