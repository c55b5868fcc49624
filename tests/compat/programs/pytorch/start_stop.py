"""The profiler without a block: start, stop, then the table and the trace."""

import torch
from torch import nn

from bridge.compat.torch_profiler import ProfilerActivity, profile

model = nn.Sequential(
    nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)
)
prof = profile(activities=[ProfilerActivity.CPU], record_shapes=True)

prof.start()
model(torch.randn(5, 3, 8, 8))
prof.stop()

print(prof.key_averages().table(sort_by="cpu_time_total", row_limit=10))
prof.export_chrome_trace("trace.json")
