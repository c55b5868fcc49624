# requires: torch
"""torch.compile with a backend of the program's own, which prints the graphs it is given; export and fx as well."""

import torch
from torch import nn
from torch.fx import symbolic_trace

import watched

GRAPHS = []


def backend(graph, inputs):
    GRAPHS.append([f"{node.op} {node.target}" for node in graph.graph.nodes])
    return graph.forward


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, values):
        return self.linear(values).relu()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Inner(), Inner()

    def forward(self, values):
        return self.second(self.first(values)) + 1


def main():
    watched.begin()
    model = Model()
    whole = torch.compile(Model(), backend=backend, fullgraph=True)
    losses = []
    with watched.watched(model, whole):

        @torch.compile(backend=backend, fullgraph=True)
        def step(values):
            return model(values).square().mean()

        for _ in range(8):
            loss = step(torch.randn(3, 6)) + whole(torch.randn(3, 6)).sum()
            loss.backward()
            losses.append(loss.item())
            watched.step()
        exported = torch.export.export(Model(), (torch.randn(3, 6),))
        traced = symbolic_trace(Model())
        scripted = torch.jit.trace(Model(), torch.randn(3, 6))
    watched.show("losses", *losses)
    watched.show("gradients", *(one.grad for one in [*model.parameters(), *whole.parameters()]))
    for graph in GRAPHS:
        print("graph", "; ".join(graph))
    print(exported.graph_module.code.strip())
    print(traced.code.strip())
    print(scripted.code.strip())


if __name__ == "__main__":
    main()
