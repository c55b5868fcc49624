"""Run a program of the documentation's kind, with our import and with the original one."""

from __future__ import annotations

import contextlib
import io
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


@dataclass
class Done:
    """What a program printed, the files that it wrote, and its global names."""

    text: str
    folder: Path
    names: dict[str, Any] = field(default_factory=dict)

    @property
    def files(self) -> set[str]:
        """The names of all files; runs of digits, such as times, as #."""
        found = (p for p in self.folder.rglob("*") if p.is_file())
        return {re.sub(r"\d{6,}", "#", str(path.relative_to(self.folder))) for path in found}


def run(program: Path, folder: Path, replace: tuple[str, str] | None = None) -> Done:
    """Run a program in a folder of its own, after a replacement in its text."""
    text = program.read_text(encoding="utf-8")
    if replace:
        assert replace[0] in text
        text = text.replace(*replace)
    folder.mkdir(parents=True)
    printed, before = io.StringIO(), Path.cwd()
    names: dict[str, Any] = {"__name__": "__main__", "__file__": str(program)}
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(text, str(program), "exec"), names)
    finally:
        os.chdir(before)
    return Done(printed.getvalue(), folder, names)
