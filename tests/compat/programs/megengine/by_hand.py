"""Start and stop by hand; the file is written at the end of the program."""

import torch

from bridge.compat.megengine.profiler import Profiler

profiler = Profiler("by_hand", profile_device=0, num_tensor_watch=0, enable_cupti=0)
profiler.start()
torch.ones(4, 4) @ torch.ones(4, 4)
profiler.stop()
