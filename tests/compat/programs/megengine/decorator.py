"""Each call of a decorated training step is profiled; the last one is kept."""

import torch
import torch.nn.functional as F

from bridge.compat.megengine.profiler import profile

model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


@profile()
def train_step(data, label, *, optimizer, model):
    logits = model(data)
    loss = F.cross_entropy(logits, label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


for _ in range(2):
    loss = train_step(torch.randn(8, 16), torch.randint(4, (8,)), optimizer=optimizer, model=model)
print(f"loss {loss.item():.3f}")
