"""Where does the time of an inference go? Tables by time, by shapes and by memory, and a trace."""

import torch
from torch import nn

from bridge.compat.torch_profiler import ProfilerActivity, profile, record_function

model = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2), nn.ReLU(),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10),
)  # fmt: skip
inputs = torch.randn(5, 3, 16, 16)

with (
    profile(activities=[ProfilerActivity.CPU], record_shapes=True) as prof,
    record_function("model_inference"),
):
    model(inputs)

print(prof.key_averages().table(sort_by="cpu_time_total", row_limit=10))
print(
    prof.key_averages(group_by_input_shape=True).table(sort_by="self_cpu_time_total", row_limit=10)
)

with profile(activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True) as prof:
    model(inputs)

print(prof.key_averages().table(sort_by="self_cpu_memory_usage", row_limit=10))
print(prof.key_averages().table(sort_by="cpu_memory_usage", row_limit=10))

prof.export_chrome_trace("trace.json")
