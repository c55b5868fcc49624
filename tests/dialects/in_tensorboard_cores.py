"""Run by the Python that has TensorBoard's PyTorch plugin: which of these kernels it takes for users of Tensor Cores, as JSON."""

import json
import sys
from pathlib import Path

from torch_tb_profiler.profiler.tensor_core import TC_Allowlist

names = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
print(json.dumps([name in TC_Allowlist for name in names]))
