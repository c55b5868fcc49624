# requires: torch, c++
"""torch.compile by inductor: a function, a module, a graph break, dynamic sizes."""

import torch
from torch import nn

import watched


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(8, 16)
        self.leave = nn.Linear(16, 4)

    def forward(self, values):
        hidden = nn.functional.gelu(self.enter(values)) * 2 + 1
        return self.leave(hidden).softmax(-1)


@torch.compile
def scaled(values, factor):
    total = (values * factor).sin().sum()
    torch._dynamo.graph_break()
    return total.cos() + values.mean()


def main():
    watched.begin()
    compiled = torch.compile(Model())
    optimizer = torch.optim.SGD(compiled.parameters(), lr=0.1)
    losses = []
    with watched.watched(compiled):
        for _ in range(12):
            loss = compiled(torch.randn(6, 8)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            watched.step()
        several = [scaled(torch.randn(size), 1.5) for size in (4, 6, 9)]
    watched.show("losses", *losses)
    watched.show("parameters", compiled)
    watched.show("several", *several)


if __name__ == "__main__":
    main()
