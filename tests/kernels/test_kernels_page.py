"""docs/kernels.md lists the kinds and libraries that there are."""

from __future__ import annotations

import re

from real_parts import ROOT

from bridge.knowledge.kernels import KINDS, rules
from bridge.knowledge.kernels.classes import built_in_rules

PAGE = ROOT / "docs" / "kernels.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_the_page_lists_all_kinds_and_libraries():
    table = TEXT.split("## Kinds")[1].split("\n\n")[1]
    listed = [kind for row in table.splitlines()[2:] for kind in re.findall(r"`(\w+)`", row.split("|")[1])]  # fmt: skip
    assert sorted(listed) == sorted(KINDS)
    named = re.split(r"[,.;] ?\n?| \(", TEXT.split("## Libraries\n\n")[1].split("; empty")[0])
    named = {name.strip() for name in named}
    assert {library.name for library in built_in_rules().libraries} - {""} <= named


def test_the_example_of_the_page_is_read():
    (example,) = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    assert [library.name for library in rules(example).libraries] == ["ours"]
