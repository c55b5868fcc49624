"""The greatest value of stretches, against a loop."""

from __future__ import annotations

import numpy as np

from bridge.analyze.cost.memory.ops import range_maxima


def test_every_stretch_of_a_column():
    values = np.random.default_rng(3).integers(-50, 50, 37)
    pairs = [(a, b) for a in range(37) for b in range(a + 1, 38)]
    first, last = (np.array([pair[n] for pair in pairs]) for n in (0, 1))
    assert range_maxima(values, first, last).tolist() == [max(values[a:b]) for a, b in pairs]
    assert not len(range_maxima(values, first[:0], last[:0]))
