"""Tables of samples of memory: of a report whose clock does not begin at 0."""

from __future__ import annotations

from made_reports import MARK, PUSH_POP, Made, thread

from bridge.analyze.memory.samples import Samples, by_sample, samples_by_op
from bridge.report import load

BEGAN = 5_000


def test_samples_are_told_by_the_time_since_the_report_began_and_ops_by_their_peaks(tmp_path):
    made, host = Made(), {"thread": thread(100)}
    made.annotation(75, 1, None, text="memory", domain=9, **host)
    for n, (op, used) in enumerate((("small", 10), ("large", 700), ("none", 5), ("large", 90))):
        start = BEGAN + 100 * n
        made.annotation(PUSH_POP, start, start + 50, text=op, **host)
        said = {"text": "counter:cuda:0 allocated", "domain": 9, "payload": used}
        made.annotation(MARK, start + 20, None, **said, **host)
    samples = Samples.of(load(made.written(tmp_path / "made.sqlite")).attributed)
    assert by_sample(samples)[["trace", "time_ns", "op", "used_bytes"]].to_numpy().tolist() == [
        [0, 20, "small", 10], [1, 120, "large", 700], [2, 220, "none", 5], [3, 320, "large", 90],
    ]  # fmt: skip
    table = samples_by_op(samples)[["op", "samples", "peak_bytes"]]
    assert table.to_dict("index") == {
        0: {"op": "large", "samples": 2, "peak_bytes": 700},
        1: {"op": "small", "samples": 1, "peak_bytes": 10},
        2: {"op": "none", "samples": 1, "peak_bytes": 5},
    }
