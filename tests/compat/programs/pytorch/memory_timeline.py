"""Memory of a training by category, over time."""

import torch
from torch import nn

from bridge.compat.torch_profiler import ProfilerActivity, profile

model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8))
optimizer = torch.optim.Adam(model.parameters())
inputs, targets = torch.randn(16, 64), torch.randint(8, (16,))

with profile(
    activities=[ProfilerActivity.CPU], record_shapes=True, profile_memory=True, with_stack=True
) as prof:
    for _ in range(2):
        loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

prof.export_memory_timeline("timeline.json", device="cpu")
prof.export_memory_timeline("timeline.raw.json.gz", device="cpu")
prof.export_memory_timeline("timeline.html", device="cpu")
print(prof.key_averages().table(sort_by="self_cpu_memory_usage", row_limit=6))
