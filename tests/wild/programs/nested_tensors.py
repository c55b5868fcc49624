# requires: torch
"""Nested tensors, jagged and strided, through modules and attention, forward and backward."""

import warnings

import torch
from torch import nn

import watched


class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))
        self.norm = nn.LayerNorm(16)
        self.leave = nn.Linear(16, 16)

    def forward(self, values):
        parts = [linear(values) for linear in self.enter]
        query, key, value = (part.unflatten(-1, (2, 8)).transpose(1, 2) for part in parts)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value)
        return self.leave(self.norm(mixed.transpose(1, 2).flatten(-2)))


def main():
    watched.begin()
    warnings.simplefilter("ignore")
    model = Attends()
    simple = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4))
    optimizer = torch.optim.SGD([*model.parameters(), *simple.parameters()], lr=0.05)
    losses = []
    with watched.watched(model, simple):
        for number in range(12):
            rows = [torch.randn(length + number % 3, 16) for length in (3, 7, 5)]
            jagged = torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=True)
            output = model(jagged)
            loss = output.values().square().mean() + simple(output).values().sum() * 0.01
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            watched.step()
        strided = torch.nested.nested_tensor(rows)
        padded = torch.nested.to_padded_tensor(simple(strided), 0.0)
    watched.show("losses", *losses)
    watched.show("parameters", model, simple, jagged.grad.values())
    watched.show("strided", padded, str(output.is_nested), str(output.layout))


if __name__ == "__main__":
    main()
