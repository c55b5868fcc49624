"""Run by the Python that has TensorBoard's PyTorch plugin: what it recommends on a trace, as JSON."""

import json
import sys

from torch_tb_profiler.profiler.data import RunProfileData

found = RunProfileData.parse("worker", None, sys.argv[1], None)
found.process()
found.analyze()
print(json.dumps(found.recommendations))
