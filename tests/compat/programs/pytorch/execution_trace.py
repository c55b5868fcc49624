"""The graph of a training step, recorded beside its timeline."""

import torch
from torch import nn

from bridge.compat.torch_profiler import ExecutionTraceObserver, ProfilerActivity, profile, schedule

model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
observer = ExecutionTraceObserver()
observer.register_callback("execution.json")

with profile(
    activities=[ProfilerActivity.CPU],
    schedule=schedule(wait=1, warmup=1, active=1, repeat=1),
    on_trace_ready=lambda prof: prof.export_chrome_trace("timeline.json"),
    record_shapes=True,
    execution_trace_observer=observer,
) as prof:
    for _ in range(3):
        model(torch.randn(4, 8)).sum().backward()
        prof.step()

observer.unregister_callback()
print(prof.key_averages().table(sort_by="cpu_time_total", row_limit=5))
