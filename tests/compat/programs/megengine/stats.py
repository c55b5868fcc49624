"""Statistics of a model: parameters, FLOPs, activations and receptive fields."""

import torch

from bridge.compat.megengine.module_stats import module_stats

model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 7, stride=2, padding=3),
    torch.nn.BatchNorm2d(8),
    torch.nn.ReLU(),
    torch.nn.MaxPool2d(3, 2, 1),
    torch.nn.Conv2d(8, 16, 3, padding=1),
    torch.nn.Flatten(),
    torch.nn.Linear(16 * 8 * 8, 10),
)
total_stats, stats_details = module_stats(model, input_shapes=(1, 3, 32, 32))
print("params", total_stats.param_dims, "flops", total_stats.flops, "acts", total_stats.act_dims)
