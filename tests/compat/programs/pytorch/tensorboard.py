"""A training whose active steps TensorBoard shows."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bridge.compat.torch_profiler as torch_profiler

data = TensorDataset(torch.randn(64, 3, 8, 8), torch.randint(5, (64,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)


def train(batch):
    images, labels = batch
    loss = criterion(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


with torch_profiler.profile(
    schedule=torch_profiler.schedule(wait=1, warmup=1, active=3, repeat=1),
    on_trace_ready=torch_profiler.tensorboard_trace_handler("log/net", worker_name="worker0"),
    record_shapes=True,
    profile_memory=True,
    with_stack=True,
) as prof:
    for step, batch in enumerate(loader):
        prof.step()
        if step >= 1 + 1 + 3:
            break
        train(batch)

print(prof.key_averages().table(sort_by="count", row_limit=8))
