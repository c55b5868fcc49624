"""The ways in which a program is run: plain, and watched by bridge."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

PYTHON = os.environ.get("WILD_PYTHON") or sys.executable
REPORT = "wild-report"
RUN = ("-m", "bridge", "run", "--no-import", "-o", REPORT)
EMITTING = (("BRIDGE_NVTX", "interop"),)  # ranges are written though no tool reads them
AUTORUN = ("-m", "bridge.autorun")  # what `bridge run --auto` has nsys start


@dataclass(frozen=True)
class Way:
    """How Python starts a program, and what the program itself then does in `watched`."""

    name: str
    start: tuple[str, ...] = ()
    inside: str = ""  # $WILD_WAY
    extra: tuple[tuple[str, str], ...] = ()
    means: str = ""

    @property
    def under_nsys(self) -> bool:
        """Whether nsys starts it."""
        return "run" in self.start

    def command(self, program: Path) -> list[str]:
        """Return the command that runs a program."""
        return [PYTHON, *self.start, str(program)]

    def environment(self) -> dict[str, str]:
        """Return what the environment has for it beside that of all programs."""
        return {"WILD_WAY": self.inside or self.name, **dict(self.extra)}


PLAIN = Way("plain", means="`python PROGRAM`")
WAYS = {
    way.name: way
    for way in (
        Way("run-auto", (*RUN, "--auto"), means="`bridge run --auto PROGRAM`"),
        Way("run", RUN, means="`bridge run PROGRAM`"),
        Way("auto", RUN, means="`bridge.torch.auto(model)`, under `bridge run`"),
        Way("profile", means="`bridge.profile()`"),
    )
}
# Without nsys, which takes seconds: the same annotations, of which ranges are written though no tool is attached.
QUICK = WAYS | {
    way.name: way
    for way in (
        Way(
            "run-auto",
            AUTORUN,
            extra=EMITTING,
            means="`python -m bridge.autorun PROGRAM`, as `bridge run --auto` does",
        ),
        Way("auto", extra=EMITTING, means="`bridge.torch.auto(model)`"),
    )
}
