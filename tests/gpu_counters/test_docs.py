"""docs/counters.md shows what its commands print of the made report."""

from __future__ import annotations

from pathlib import Path

import pytest
from real_parts import ROOT
from test_docs import blocks, bridge_lines, run

from gpu_counters.made import made

PAGE = ROOT / "docs" / "counters.md"


@pytest.mark.slow
def test_the_page_shows_what_its_commands_print(tmp_path: Path) -> None:
    made(tmp_path / "made.sqlite")
    printed, shown = [], []
    for kind, body in blocks(PAGE.read_text(encoding="utf-8")):
        if kind == "made-run":
            printed.append("".join(run(line, tmp_path) for line in bridge_lines(body)))
        elif kind == "made-output":
            shown.append(body)
    assert printed
    assert shown == printed
