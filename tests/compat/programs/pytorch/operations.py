"""FLOPs, modules and overloads of ops, and what single events tell."""

import torch
from torch import nn

from bridge.compat.torch_profiler import (
    DeviceType,
    EventList,
    ProfilerActivity,
    _ExperimentalConfig,
    emit_itt,
    profile,
    record_function,
)

model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 5))
inputs = torch.randn(2, 3, 8, 8)

with profile(
    activities=[{ProfilerActivity.CPU: ["CPU_OP", "USER_ANNOTATION"]}],
    record_shapes=True,
    with_flops=True,
    with_modules=True,
    experimental_config=_ExperimentalConfig(capture_overload_names=True),
) as prof:
    with record_function("forward"):
        loss = model(inputs).sum()
    loss.backward()

print(prof.key_averages().table(sort_by="flops", row_limit=5, max_name_column_width=40))
print(prof.key_averages(group_by_overload_name=True).table(sort_by="count", row_limit=5))
print(prof.events().table(top_level_events_only=True, sort_by="count", row_limit=-1))
events = prof.events()
print(isinstance(events, EventList), {event.device_type == DeviceType.CPU for event in events})
print(
    sorted({(event.name, event.cpu_parent is None) for event in events if "forward" in event.name})
)

with emit_itt():
    model(inputs)
