# requires: torch
"""A program that ends by sys.exit(3) inside a module, with functions that run at its exit."""

import atexit
import sys

import torch
from torch import nn

import watched


class Last(nn.Module):
    def forward(self, values):
        try:
            if values.sum() > 0:
                sys.exit(3)
        finally:
            print("finally", sys.exc_info()[0].__name__, flush=True)
        return values


def main():
    watched.begin()
    atexit.register(lambda: print("at exit", flush=True))
    atexit.register(lambda: print("at exit, on stderr", file=sys.stderr, flush=True))
    model = nn.Sequential(nn.Linear(4, 4), nn.Sigmoid(), Last())
    with watched.watched(model):
        try:
            model(torch.ones(2, 4))
        except SystemExit as leaving:
            watched.show("leaving", leaving.code)
        output = model[:2](torch.ones(2, 4))
        output.sum().backward()
        watched.show("gradients", output, *(one.grad for one in model.parameters()))
        model(torch.ones(2, 4))
    print("not reached")


if __name__ == "__main__":
    main()
