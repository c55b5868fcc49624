"""The walkthrough: its commands on the profile that it is about print what it shows."""

from __future__ import annotations

import shutil
from pathlib import Path

from real_parts import ROOT
from test_docs import blocks, bridge_lines, run

PAGE = ROOT / "docs" / "walkthrough.md"


def test_the_walkthrough_shows_what_its_commands_print(corpus: Path, tmp_path: Path) -> None:
    shutil.copy(corpus / "nsys" / "mnist-training.sqlite", tmp_path)
    printed, compared = "", 0
    for kind, body in blocks(PAGE.read_text(encoding="utf-8")):
        if kind == "corpus-run":
            printed = "".join(run(line, tmp_path) for line in bridge_lines(body))
        elif kind == "corpus-output":
            assert printed == body
            compared += 1
    assert compared >= 7
