"""Hardware counters over time: what GPUs did while ops ran, by samples that nsys takes of each GPU.

docs/counters.md defines every figure.
"""

from __future__ import annotations

from bridge.analyze.cost.counters.energy import energy_columns, has_energy
from bridge.analyze.cost.counters.figures import counter_columns
from bridge.analyze.cost.counters.table import by_counter

__all__ = ["by_counter", "counter_columns", "energy_columns", "has_energy"]
