"""Scopes that name the memory of a network's layers, and the use of memory in the aggregates."""

import torch
from torch import nn

from bridge.compat.mxnet import profiler

profiler.set_config(
    profile_memory=True,
    aggregate_stats=True,
    filename="memory.json",
    gpu_memory_profile_filename_prefix="gpu_memory",
)
profiler.set_state("run")
device = "cuda" if torch.cuda.is_available() else "cpu"
with profiler.scope("net:"):
    with profiler.scope("fc1:") as path:
        first = nn.Linear(256, 256).to(device)
        print(path)
    with profiler.scope("fc2:", append_mode=True):
        second = nn.Linear(256, 10).to(device)
    out = second(torch.relu(first(torch.rand(32, 256, device=device))))
with profiler.scope() as path:
    print(path)
out.sum().backward()
profiler.set_state("stop")
print(profiler.dumps())
profiler.dump()
