"""Where the time of a matrix multiplication goes, by aggregates that are sorted and reset."""

import json

import torch

from bridge.compat.mxnet import profiler

profiler.set_config(
    profile_imperative=True, profile_api=False, profile_memory=False, aggregate_stats=True
)
profiler.set_state("run")
x = torch.rand(300, 300)
for _ in range(4):
    y = torch.mm(x, x)
y_np = y.numpy()
z = torch.exp(x)
profiler.set_state("stop")

for sort_by in ("total", "avg", "min", "max", "count"):
    for ascending in (False, True):
        rows = json.loads(profiler.dumps(format="json", sort_by=sort_by, ascending=ascending))
        key = {"count": "Count"}.get(sort_by, sort_by.capitalize())
        values = [row[key] for row in rows["Time"]["operator"].values()]
        assert values == sorted(values, reverse=not ascending), (sort_by, ascending)
print(profiler.dumps(reset=True, format="json"))
print(profiler.dumps(format="json"))
