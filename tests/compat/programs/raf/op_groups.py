"""Profile several operators together, and each of them with more runs."""

import torch

from bridge.compat.raf import cpu
from bridge.compat.raf.op_profiler import GetCacheSize, Profile, ProfileGroup, ResetCache

ResetCache(cpu())
a, b = torch.rand(64, 64), torch.rand(64, 64)
group = ProfileGroup([(torch.mm, a, b), (torch.add, a, b)], cpu(), [1, 2], 2, 5, 3)
single = Profile((torch.mm, a, b), cpu(), warmup=2, exec_number=5, repeat=3)
print(len(group["latency"]), len(single["latency"]), GetCacheSize(cpu()))
print(sum(single["latency"]) / 3 == sum(v.value for v in single["latency"]) / 3)
ResetCache(cpu())
print(GetCacheSize(cpu()))
