"""A program whose work has no ops: the memory profiler says so, and samples at the end."""

from bridge.compat.raf.utils import memory_profiler

from bridge.compat.raf import Device

memory_profiler.reset()
memory_profiler.start()
kept = bytearray(1 << 20)
memory_profiler.stop()
print(memory_profiler.get_max_memory_info(Device("cpu"))["max_used"].value > 1)
print(memory_profiler.get_memory_trace(Device("cpu")))
