"""Programs at random: all backward work is done in the ranges of the modules whose forward work it belongs to."""

from __future__ import annotations

import random

import pytest
from small import identical, nn, torch

import bridge.torch

PROGRAMS = 150


class Watched(torch.autograd.Function):
    """A product that tells where its forward and its backward work were done."""

    @staticmethod
    def forward(ctx, one, other, where):
        ctx.where, ctx.began = where, where()
        ctx.save_for_backward(one, other)
        return one * other

    @staticmethod
    def backward(ctx, gradient):
        one, other = ctx.saved_tensors
        ctx.where(ctx.began)
        return gradient * other, gradient * one, None


class Node(nn.Module):
    """A module of random ops, calls and outputs, the same at every call."""

    def __init__(self, chance: random.Random, where, depth: int = 0) -> None:
        super().__init__()
        self.where = where
        self.weight = nn.Parameter(torch.ones(2), requires_grad=chance.random() < 0.8)
        count = chance.randint(0, 3) if depth < 3 else 0
        self.children_ = nn.ModuleList(Node(chance, where, depth + 1) for _ in range(count))
        steps = ["op", "op", "weight", *range(count), *range(count)]
        self.plan = [
            (chance.choice(steps), chance.random(), chance.random())
            for _ in range(chance.randint(1, 6))
        ]
        self.outputs = chance.choice([1, 1, 2])
        self.in_place = chance.random() < 0.2

    def forward(self, value):
        values = [value]
        for step, first, second in self.plan:
            one, other = (values[int(chance * len(values))] for chance in (first, second))
            values += self.step(step, one, other)
        last = values[-1] + 0
        if self.in_place:
            last.add_(1)
        return last if self.outputs == 1 else (last, values[len(values) // 2])

    def step(self, step, one, other):
        if step == "op":
            return [Watched.apply(one, other, self.where)]
        if step == "weight":
            return [Watched.apply(one, self.weight, self.where)]
        made = self.children_[step](one)
        # All outputs are used: what leads to others alone is not run, nor is it known to be.
        return [made if isinstance(made, torch.Tensor) else made[0] + made[1]]


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_backward_work_is_where_its_forward_work_was(tool, seed):
    pairs = []

    def where(began=None):
        found = tuple(name.split(":")[1] for name in tool.open())
        if began is not None:
            pairs.append((began, found))
        return found

    def run(model):
        torch.manual_seed(seed)
        batch = torch.rand(2, requires_grad=True)
        out = model(batch)
        out = out if isinstance(out, torch.Tensor) else sum(out)
        (out.sum() + batch.sum()).backward()
        gradients = (parameter.grad for parameter in model.parameters())
        return [out.detach(), batch.grad, *(g for g in gradients if g is not None)]

    expected = run(Node(random.Random(seed), lambda *_: ()))
    model = Node(random.Random(seed), where)
    with bridge.torch.annotate(model):
        assert identical(expected, run(model))
    assert all(began == found for began, found in pairs), [p for p in pairs if p[0] != p[1]]
    assert len(tool.slices) == tool.calls().total(), "a range in pieces"


@pytest.mark.slow
def test_the_programs_have_backward_work_in_inner_modules(tool):
    depths = []

    def where(began=None):
        depths.append(len(tool.open()))
        return ()

    for seed in range(PROGRAMS):
        model = Node(random.Random(seed), where)
        with bridge.torch.annotate(model):
            out = model(torch.ones(2, requires_grad=True))
            (out if isinstance(out, torch.Tensor) else sum(out)).sum().backward()
    assert depths.count(3) > 100
