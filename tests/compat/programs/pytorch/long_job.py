"""A job of many steps: a schedule, a handler that prints and exports each cycle, and call stacks."""

import torch
from torch import nn

from bridge.compat.torch_profiler import ProfilerActivity, _ExperimentalConfig, profile, schedule

model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
inputs = torch.randn(8, 16)


def trace_handler(p):
    print(f"cycle that ends at step {p.step_num}")
    print(p.key_averages().table(sort_by="self_cpu_time_total", row_limit=10))
    p.export_chrome_trace(f"trace_{p.step_num}.json")


with profile(
    activities=[ProfilerActivity.CPU],
    schedule=schedule(skip_first=1, wait=1, warmup=1, active=2, repeat=2),
    on_trace_ready=trace_handler,
) as p:
    for _ in range(10):
        model(inputs)
        p.step()

with profile(
    activities=[ProfilerActivity.CPU],
    with_stack=True,
    experimental_config=_ExperimentalConfig(verbose=True),
) as prof:
    model(inputs)

print(prof.key_averages(group_by_stack_n=5).table(sort_by="self_cpu_time_total", row_limit=2))
prof.export_stacks("profiler_stacks.txt", "self_cpu_time_total")
