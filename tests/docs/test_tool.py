"""`python -m tests.docs` writes the files that differ, and says which."""

from __future__ import annotations

import re

from docs import __main__ as tool


def test_it_lists_its_subcommands_without_one(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["docs"])
    tool.main()
    named = re.findall(r"^    (\w+)", capsys.readouterr().out, re.MULTILINE)
    assert named == [*tool.WRITERS, "all"]


def test_a_file_that_differs_is_written_and_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    alike, other = tmp_path / "alike.md", tmp_path / "other.md"
    alike.write_text("µ\n", encoding="utf-8")
    other.write_text("old\n", encoding="utf-8")
    tool.write(iter([(alike, "µ\n"), (other, "new\n"), (tmp_path / "a.png", b"\x89PNG")]))
    assert other.read_text(encoding="utf-8") == "new\n"
    assert capsys.readouterr().out == "wrote other.md\nwrote a.png\nunchanged: 1\n"
