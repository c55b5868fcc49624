# requires: torch
"""Modules that return what must not be looked into: a lazy Mapping, a generator, objects that count each access."""

from collections.abc import Mapping, Sequence

import torch
from torch import nn

import watched

LOG = []


class Lazy(Mapping):
    """Computes a value when it is asked for, and writes down that it was."""

    def __init__(self, heads, values):
        self.heads = heads
        self.values_in = values

    def __getitem__(self, key):
        LOG.append(f"get {key}")
        return self.heads[key](self.values_in)

    def __iter__(self):
        LOG.append("iterate")
        return iter(self.heads)

    def __len__(self):
        LOG.append("length")
        return len(self.heads)

    def __bool__(self):
        LOG.append("truth")
        return True


class Rows(Sequence):
    """A sequence that can be read only from the front, as one that reads a file."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __getitem__(self, index):
        LOG.append(f"row {index}")
        return self.tensor[index]

    def __len__(self):
        LOG.append("rows")
        return len(self.tensor)


class Touchy:
    """An object that writes down which attributes are asked for."""

    def __init__(self, tensor):
        object.__setattr__(self, "tensor", tensor)

    def __getattribute__(self, name):
        if not name.startswith("__"):
            LOG.append(f"attribute {name}")
        return object.__getattribute__(self, name)

    def __eq__(self, other):
        LOG.append("equal")
        return self is other

    __hash__ = None


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.heads = nn.ModuleDict({"one": nn.Linear(8, 2), "two": nn.Linear(8, 3)})

    def forward(self, values):
        return Lazy(self.heads, self.body(values).relu())


class Streams(nn.Module):
    def forward(self, values):
        def rows():
            for number, row in enumerate(values):
                LOG.append(f"made {number}")
                yield row * 2

        return rows()


class Gives(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    def forward(self, values):
        return self.kind(values)


def main():
    watched.begin()
    model, streams, rows, touchy = Model(), Streams(), Gives(Rows), Gives(Touchy)
    losses = []
    with watched.watched(model, streams, rows, touchy):
        for number in range(12):
            model.zero_grad()
            values = torch.randn(4, 8)
            output = model(values)
            LOG.append(f"step {number}")
            loss = output["one" if number % 2 else "two"].square().sum()
            loss.backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    if parameter.grad is not None:
                        parameter.sub_(0.1 * parameter.grad)
            losses.append(loss.item())
            watched.step()
        stream = streams(values.requires_grad_())
        LOG.append("streams")
        first = next(stream)
        first.sum().backward()
        read = rows(values)
        touched = touchy(values)
        LOG.append(f"kinds {type(output).__name__} {type(stream).__name__} {type(read).__name__}")
    watched.show("losses", *losses)
    watched.show("parameters", model, values.grad, type(touched).__name__)
    print("\n".join(LOG))


if __name__ == "__main__":
    main()
