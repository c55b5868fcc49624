"""Profile one iteration of a convolutional network, look at the aggregates, and write the timeline twice."""

import torch
from torch import nn

from bridge.compat.mxnet import profiler

profiler.set_config(
    profile_all=True, aggregate_stats=True, continuous_dump=True, filename="profile_output.json"
)

net = nn.Sequential(
    nn.Conv2d(1, 20, 5),
    nn.ReLU(),
    nn.MaxPool2d(2, 2),
    nn.Conv2d(20, 50, 5),
    nn.ReLU(),
    nn.MaxPool2d(2, 2),
    nn.Flatten(),
    nn.LazyLinear(512),
    nn.ReLU(),
    nn.Linear(512, 10),
)
softmax_cross_entropy = nn.CrossEntropyLoss()
batches = iter([(torch.rand(8, 1, 28, 28), torch.randint(0, 10, (8,))) for _ in range(3)])
net(torch.rand(8, 1, 28, 28))
trainer = torch.optim.SGD(net.parameters(), lr=0.1)


def run_training_iteration(data, label):
    loss = softmax_cross_entropy(net(data), label)
    loss.backward()
    trainer.step()


# Run the first iteration without profiling
run_training_iteration(*next(batches))

# Ask the profiler to start recording
profiler.set_state("run")
run_training_iteration(*next(batches))
# Ask the profiler to stop recording
profiler.set_state("stop")
# Dump all results to log file before download
profiler.dump()

# View in console
profiler.set_state("run")
profiler.set_state("stop")
print(profiler.dumps())

# View in browser
profiler.dump(finished=False)
