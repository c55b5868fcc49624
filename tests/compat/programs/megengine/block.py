"""A profiler around a block, with scopes, both formats, backtraces, samples of memory and steps."""

import torch
import torch.nn.functional as F

from bridge.compat.megengine.profiler import Profiler, is_profiling, scope

model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU())
profiler = Profiler(
    path="block",
    formats=["chrome_timeline.json", "memory_flow.svg"],
    with_scopes=True,
    with_backtrace=True,
    sample_rate=4,
)
with profiler:
    assert is_profiling()
    for _ in range(3):
        with scope("forward"):
            out = F.max_pool2d(model(torch.randn(2, 3, 16, 16)), 2)
        with scope("backward"):
            out.mean().backward()
        del out
        profiler.step()
assert not is_profiling()
profiler.dump()
print(profiler.path)
