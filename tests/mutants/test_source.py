"""The mutants themselves: what is changed, that it is a change, and by what it is known."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

from mutants.source import mutants
from real_parts import ROOT

CODE = '''
"""Words."""

LIMIT = 1 << 20
NAMES = ("a", "left")


def chosen(values: list[int] = [1], *, most: int = 3) -> int:
    """Words."""
    if most and values:
        return max(v + 1 for v in values if v > 2)
    raise ValueError(f"{most} is no {LIMIT + 1}")


class Kept:
    def note(self, value):
        self.values.append(value)
        return -value if value is not None else zip(value, value, strict=True)
'''
EXPECTED = {
    "LIMIT: 1 << 20 → (1 >> 20)", "LIMIT: 1 → 2", "LIMIT: 20 → 21", "NAMES: 'left' → 'right'",
    "chosen: most and values → (not (most and values))", "chosen: most and values → (most or values)",
    "chosen: max((v + 1 for v in values if v > 2)) → (min((v + 1 for v in values if v > 2)))",
    "chosen: v + 1 → (v - 1)", "chosen: 1 → 2", "chosen: v > 2 → (v >= 2)", "chosen: 2 → 3",
    "Kept.note: self.values.append(value) → pass", "Kept.note: -value → (value)",
    "Kept.note: value is not None → (value is None)",
}  # fmt: skip


def test_what_is_changed():
    assert {mutant.name for mutant in mutants("x.py", CODE)} == EXPECTED


def test_each_is_another_program():
    for mutant in mutants("x.py", CODE):
        changed = mutant.applied(CODE)
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(CODE))
        assert (
            sum(a != b for a, b in zip(changed.splitlines(), CODE.splitlines(), strict=True)) == 1
        )


def test_a_name_stays_where_the_code_moves():
    before = {mutant.name: mutant.lot for mutant in mutants("x.py", CODE)}
    after = {mutant.name: mutant.lot for mutant in mutants("y.py", f"import os\n\n{CODE}")}
    assert before == after


def test_twins_are_told_apart():
    twins = [mutant.name for mutant in mutants("x.py", "def f(a):\n    return a + 1, a + 1\n")]
    assert len(set(twins)) == len(twins)
    assert "f: a + 1 → (a - 1) (2)" in twins


def test_what_is_said_to_change_nothing_is_still_there():
    reasons = tomllib.loads((Path(__file__).parent / "equivalent.toml").read_text(encoding="utf-8"))
    files = [path for package in ("bridge", "importers") for path in (ROOT / package).rglob("*.py")]
    texts = [(path.name, path.read_text(encoding="utf-8")) for path in files]
    functions = {name.partition(":")[0].rpartition(".")[2] for name in reasons}
    named = {word for word in functions if word.isidentifier()}
    assert named == functions
    # Only of modules that have one of these names in them: to list all mutants takes seconds.
    names = {
        one.name
        for name, text in texts
        if any(word in text for word in named)
        for one in mutants(name, text)
    }
    assert [name for name in reasons if name not in names] == []
    assert all(reasons.values())
