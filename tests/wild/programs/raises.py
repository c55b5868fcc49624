# requires: torch
"""A program that ends with an exception in a module: the traceback says where, and holds no frames but its own."""

import torch
from torch import nn

import watched


class Picky(nn.Module):
    def __init__(self, limit):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.limit = limit

    def forward(self, values):
        result = self.linear(values)
        if result.sum() > self.limit:
            message = f"more than {self.limit}"
            raise ValueError(message)
        return result


def main():
    watched.begin()
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), Picky(1e9), Picky(-1e9))
    with watched.watched(model):
        try:
            model[3](torch.ones(2, 4))
        except ValueError as error:
            watched.show("caught", str(error))
        try:
            model(torch.ones(2, 5))
        except RuntimeError as error:
            watched.show("caught", str(error))
        watched.show("before", model[:3](torch.ones(2, 4)))
        model(torch.ones(2, 4))


if __name__ == "__main__":
    main()
