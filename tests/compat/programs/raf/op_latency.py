"""Profile one operator, given as an expression."""

from bridge.compat import raf
from bridge.compat.raf._ffi.op_profiler import GetCacheSize, Profile, ResetCache
from bridge.compat.raf.testing import run_infer_type

data = raf.ir.var("x", shape=(2, 3, 32, 32))
weight = raf.ir.var("w", shape=(3, 3, 5, 5))
expr = raf.ir.op.conv2d(data, weight)
expr = run_infer_type(expr).body

device = raf.Device("cpu")

# First reset the op profiler cache.
ResetCache(device)

res = Profile(expr, device)
lat, ws_size = res["latency"], res["workspace_size"]
print("Latency:", lat[0].value)  # By default it only profiles once.
print("Workspace size:", ws_size.value)
Profile(expr, device)
print("Cached:", GetCacheSize(device))
