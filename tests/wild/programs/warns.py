# requires: torch
"""Warnings that name the line of who calls (stacklevel=2), through modules, functions of autograd and loggers."""

import logging
import warnings

import torch
from torch import nn

import watched


def old(values):
    warnings.warn("old is deprecated", DeprecationWarning, stacklevel=2)
    return values * 2


class Outdated(nn.Linear):
    def forward(self, values):
        warnings.warn("the caller is named", UserWarning, stacklevel=2)
        warnings.warn("the caller of the caller", UserWarning, stacklevel=3)
        warnings.warn("who called the module", FutureWarning, stacklevel=4)
        logging.getLogger("outdated").warning("logged", stacklevel=2)
        return old(super().forward(values))


def main():
    watched.begin()
    logging.basicConfig(format="%(pathname)s:%(lineno)d %(funcName)s %(message)s")
    warnings.simplefilter("always")
    model = nn.Sequential(nn.Linear(4, 4), Outdated(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    with watched.watched(model):
        loss = model(torch.ones(2, 4)).sum()
        loss.backward()
        scheduler.step()  # warns: before the optimizer
        optimizer.step()
        old(torch.ones(2))
        watched.show("gradient", loss.grad)  # warns: no leaf
        nn.functional.mse_loss(torch.ones(2, 1), torch.ones(2, 3))  # warns: sizes
        torch.ones(3, requires_grad=True).sum().backward(create_graph=True)  # warns: cycles
    watched.show("parameters", model, loss.item())


if __name__ == "__main__":
    main()
