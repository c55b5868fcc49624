"""Profile the memory footprint of a model."""

from torch import nn

from bridge.compat import raf
from bridge.compat.raf.testing import (
    append_loss_n_optimizer,
    one_hot_torch,
    randn_torch,
    run_vm_model,
)

model = nn.Sequential(nn.Linear(768, 64), nn.ReLU(), nn.Linear(64, 10))
(r_x, _), (r_ytrue, _), (r_dy, _) = randn_torch((16, 768)), one_hot_torch(16, 10), randn_torch(())
optimizer, args = append_loss_n_optimizer(model, [r_x], (16, 10), r_ytrue), [r_dy, r_x, r_ytrue]

# Clean the existing profiled stats and enable memory profiler.
raf.utils.memory_profiler.reset()
raf.utils.memory_profiler.start()

# Run the model. Note that we do not need to warm up before profiling memory.
run_vm_model(optimizer, "cpu", args)

# Disable memory profiler.
raf.utils.memory_profiler.stop()

# Show the peak memory usage.
result = raf.utils.memory_profiler.get_max_memory_info(raf.Device("cpu"))
print("Max used memory (MBs):", result["max_used"].value)
print("Max allocated memory (MBs):", result["max_allocated"].value)
print("At:", result["max_trace_idx"].value, "collections:", result["num_gc"].value)

# Show the memory traces.
print("Memory Trace:")
print(raf.utils.memory_profiler.get_memory_trace(raf.Device("cpu")))
