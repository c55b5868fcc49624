"""Profile code of one's own, with arguments, and look one event up."""

import time

from bridge.compat.raf.utils import profiler

from bridge import nvtx_op
from bridge.compat.raf import scope_timer

profiler.start()
memory = [1 << 20] * 3
with nvtx_op("conv2d", category="MemoryRequest", args={"Count": len(memory)}):
    for size in memory:
        bytearray(size)
with nvtx_op("conv2d", category="ComputationOperator"):
    time.sleep(0.02)
profiler.stop()
data = profiler.get()
print(profiler.get_duration(data, "conv2d", "ComputationOperator"))
profiler.dump()


@scope_timer.timed("some_func")
def some_func():
    time.sleep(0.01)


for _ in range(3):
    some_func()
with scope_timer.timed("flushed", flush=True):
    pass
scope_timer.DumpReport()
scope_timer.Reset()
scope_timer.DumpReport()
