# requires: torch
"""Threads: one trains, others infer with the same and with their own models, one calls backward for another."""

import threading
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

import watched


class Remembers(threading.local):
    calls = 0


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
        self.seen = Remembers()

    def forward(self, values):
        self.seen.calls += 1
        return self.layers(values)


def train(model, inputs, losses):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for values in inputs:
        loss = model(values).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())


def infer(model, inputs):
    with torch.inference_mode():
        return [model(values) for values in inputs], model.seen.calls


def main():
    watched.begin()
    shared, others = Model(), [Model() for _ in range(3)]
    inputs = [torch.randn(4, 8) for _ in range(12)]
    losses = [[] for _ in others]
    kept, caught = [], []
    with watched.watched(shared, *others):
        trainers = [
            threading.Thread(target=train, args=(model, inputs, into), name=f"trains-{number}")
            for number, (model, into) in enumerate(zip(others, losses, strict=True))
        ]
        for thread in trainers:
            thread.start()
        with ThreadPoolExecutor(3) as pool:
            kept += pool.map(lambda one: infer(shared, [one])[0], inputs)
        for thread in trainers:
            thread.join()
        for values in inputs:
            output = shared(values).sum()
            elsewhere = threading.Thread(target=output.backward)
            elsewhere.start()
            elsewhere.join()
            watched.step()
        with ThreadPoolExecutor(1) as pool:
            try:
                pool.submit(shared, torch.ones(2, 3)).result()
            except RuntimeError as error:
                caught.append(str(error))
    watched.show("losses", *losses)
    watched.show("outputs", *kept, infer(shared, inputs)[1])
    watched.show("parameters", *others, *(one.grad for one in shared.parameters()))
    watched.show("caught", *caught)


if __name__ == "__main__":
    main()
