"""What gates found, as a pull request shows it."""

import pandas as pd

from bridge.analyze.compare.gates import Verdict
from bridge.render.diff import DiffView, as_markdown

FOUND = [
    Verdict("5%", "mm", True, "mm: within 5 %"),
    Verdict("5%", "conv", False, "conv: +7 %"),
    Verdict("budget", "", True, "GPU time: 3 ms of 4 ms", "could be 3 ms"),
]


def test_what_failed_is_crossed_and_comes_first_what_passed_is_checked():
    shown = DiffView(["a.sqlite"], ["b.sqlite"], None, pd.DataFrame(), FOUND)
    assert as_markdown(shown).splitlines() == [
        "### a.sqlite → b.sqlite",
        "",
        "- :x: conv: +7 %",
        "- :white_check_mark: mm: within 5 %",
        "- :white_check_mark: GPU time: 3 ms of 4 ms (could be 3 ms)",
        "",
    ]
