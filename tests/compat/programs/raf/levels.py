"""The two levels of profiling: ops alone, and what the host does to run them as well."""

import torch
from bridge.compat.raf.utils import profiler

net = torch.nn.Linear(8, 8)
x = torch.rand(4, 8)
for level in (1, 2):
    profiler.start(prof_level=level)
    torch.relu(net(x)).sum().item()
    profiler.stop()
    profiler.dump(f"level{level}.json")
    profiler.clear()
profiler.start(0)
net(x)
profiler.stop()
profiler.dump("level0.json")
