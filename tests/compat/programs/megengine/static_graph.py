"""The profile of a traced function, saved as JSON for profile_analyze."""

import json

import torch
import torch.nn.functional as F

from bridge.compat.megengine.jit import trace

model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3, padding=1),
    torch.nn.ReLU(),
    torch.nn.Flatten(),
    torch.nn.Linear(512, 10),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


@trace(symbolic=True, profiling=True)
def train_step(data, label, *, optimizer, model):
    logits = model(data)
    loss = F.cross_entropy(logits, label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


for _ in range(2):
    train_step(torch.randn(4, 3, 8, 8), torch.randint(10, (4,)), optimizer=optimizer, model=model)
prof_result = train_step.get_profile()
with open("profiling.json", "w") as fout:
    json.dump(prof_result, fout, indent=2)
