"""Pairs of programs, one with a trouble and one without: the difference of their times is what advice is held against.

- `pairs`: the programs, and the table `PAIRS`.
- `run`: times both programs of each pair without a profiler, captures the one with the trouble, asks `bridge advise`, and
  writes a line per pair: `python -m tests.gpu.remedies.run OUT`.

README.md says what a pair is, what the columns are, and which pairs can be timed without a GPU.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
for folder in (
    HERE.parents[1],
    HERE.parent,
):  # of cuda_stand_in and simulated; of program and remedies
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
