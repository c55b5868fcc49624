"""A PyTorch model annotated without a line in it: modules forward and backward, optimizer, data loader.

bridge run examples/torch_automatic.py
bridge report --by module
"""

import torch
from torch import nn

import bridge.torch

device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 4)).to(device)
optimizer = torch.optim.AdamW(model.parameters())
data = torch.utils.data.TensorDataset(torch.randn(96, 32), torch.randint(4, (96,)))
loader = torch.utils.data.DataLoader(data, batch_size=32)

with bridge.torch.auto(model):
    for inputs, labels in loader:
        loss = nn.functional.cross_entropy(model(inputs.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(f"loss {loss.item():.3f}")
