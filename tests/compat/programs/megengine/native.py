"""The functions below the profiler: start, scopes, stop, and the file that the result writes."""

import torch

from bridge.compat.megengine import pop_scope, push_scope, start_profile, stop_profile, stop_step

start_profile({"sample_rate": 0})
push_scope("epoch")
torch.ones(8).exp()
pop_scope("epoch")
stop_step()
dump = stop_profile()
dump("native.json", "chrome_timeline.json")
dump("native.svg", "memory_flow.svg")
