"""Programs of libraries as they are, run with and without bridge: whatever differs is a fault of bridge.

Each file of ``programs`` is a program that prints exact results. It is run plain, and watched in each way that bridge
offers; results, exit status, stderr and the ops that PyTorch's profiler counts must be the same bit for bit.

    python -m tests.wild [NAMES] [--ways run-auto,auto] [--quick] [--costs] [--write docs/wild.md]

$WILD_PYTHON is the Python whose libraries and whose bridge are used, else this one; a PYTHONPATH chooses another checkout.

The modules: `ways` (how a program is started), `cleaning` (what of its output is not its own), `harness` (runs and
compares), `tables`.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ != "wild":  # as tests.wild: modules of tests find each other, as under pytest
    sys.path.insert(0, str(Path(__file__).parents[1]))
