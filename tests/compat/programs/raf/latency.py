"""Profile the latency of every op of a training step."""

import json

import torch
from torch import nn

from bridge.compat import raf
from bridge.compat.raf.testing import (
    append_loss_n_optimizer,
    get_vm_executor,
    one_hot_torch,
    randn_torch,
    run_vm_executor,
)


def setup_model():
    model = nn.Sequential(nn.Linear(768, 64), nn.GELU(), nn.Linear(64, 10))
    r_x, _ = randn_torch((16, 768))
    r_ytrue, _ = one_hot_torch(16, 10)
    r_dy, _ = randn_torch((), dtype="float32")
    optimizer = append_loss_n_optimizer(model, [r_x], (16, 10), r_ytrue)
    return optimizer, [r_dy, r_x, r_ytrue]


# Setup model.
optimizer, args = setup_model()

# Initialize a VM executor once.
record = optimizer._internal(*args)
executor = get_vm_executor(record.mod, "cpu")

# Run a few time to warmup to exclude the JITing overheads.
for _ in range(3):
    run_vm_executor(executor, record, args, "cpu")

# Clean the existing profiled stats and enable latency profiler.
raf.utils.profiler.clear()
raf.utils.profiler.start()

# Run the model with profiler.
run_vm_executor(executor, record, args, "cpu")
torch.ones(768).half()

# Disable latency profiler.
raf.utils.profiler.stop()

result = raf.utils.profiler.get()
with open("profile.json", "w") as filep:
    json.dump(result, filep, indent=4)
raf.utils.profiler.dump("dumped.json")
raf.utils.profiler.clear()
assert raf.utils.profiler.get()["traceEvents"] == []
