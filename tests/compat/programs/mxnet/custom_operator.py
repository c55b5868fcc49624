"""A custom operator, whose own code and whose operators are told apart."""

import torch

from bridge.compat.mxnet import profiler


class MyAddOne(torch.autograd.Function):
    @staticmethod
    def forward(ctx, data):
        return data + 1

    @staticmethod
    def backward(ctx, out_grad):
        return out_grad.clone()


inp = torch.zeros(500, 500, requires_grad=True)

profiler.set_config(profile_all=True, continuous_dump=True, aggregate_stats=True)
profiler.set_state("run")

w = MyAddOne.apply(inp)
w.backward(torch.ones_like(w))

profiler.set_state("stop")
print(profiler.dumps(format="json"))
profiler.dump(finished=False)

# Set profile_symbolic and profile_imperative to True
profiler.set_config(
    profile_symbolic=True, profile_imperative=True, aggregate_stats=True, continuous_dump=True
)
profiler.set_state("run")
MyAddOne.apply(inp)
profiler.set_state("stop")
profiler.dump()
