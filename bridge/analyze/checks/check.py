"""What is looked for in a capture: a check of the program, which gives advice, or of the capture itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

NOT_ESTIMATED = "none"
# What a remedy may save of the ceiling of a finding: of a cause with a name (a range, a call, a
# kernel), of one without, and of a symptom, which has other causes.
NAMED, UNNAMED, SYMPTOM = 0.5, 0.25, 0.1
NS, SHARE, COUNT, RATE = "ns", "share", "count", "per second"  # units of measurements


@dataclass(frozen=True, kw_only=True)
class Scale:
    """The points that a measured value costs: none up to ``free``, all ``points`` from ``full`` on.

    ``full`` is smaller where less is worse. ``unit`` is that of the value: "ns", "share" (of 1),
    "count" or "per second".
    """

    unit: str
    free: float
    full: float
    points: int

    def cost(self, value: float) -> int:
        """Return the points for a value: proportional between ``free`` and ``full``, rounded up."""
        part = (value - self.free) / (self.full - self.free)
        return math.ceil(round(self.points * min(max(part, 0.0), 1.0), 6))


E_contra = TypeVar("E_contra", contravariant=True)  # a capture as checks see it
R_co = TypeVar("R_co", covariant=True)  # what is found


@dataclass(frozen=True, kw_only=True)
class Check(Generic[E_contra, R_co]):
    """A check: what it looks for, the sentence on what it finds, and what to do about it.

    One without a ``scale`` is a rule of advice on the program. One with a scale is a reason against
    the capture: it measures what its ``title`` says, and costs points.

    ``text`` has placeholders for figures, as ``remedy`` may have; ``remedy_elsewhere`` is the remedy
    for programs without PyTorch, if it differs. ``source`` is where the check comes from. ``needs``
    are names of docs/advise.md; ``timeline`` is False if it need not know when anything ran. ``find``
    returns None or no finding if all is well. Of a rule, ``when`` says when it applies and
    ``estimate`` how the saving is estimated; ``certainty`` is the part of the ceiling that a remedy
    without an estimate may save, and ``is_first`` says that it comes before all others.
    """

    name: str
    title: str
    text: str
    remedy: str
    find: Callable[[E_contra], R_co]
    when: str = ""
    remedy_elsewhere: str = ""
    source: str = ""
    needs: tuple[str, ...] = ()
    timeline: bool = True
    estimate: str = NOT_ESTIMATED
    certainty: float = UNNAMED
    is_first: bool = False
    scale: Scale | None = None

    def remedy_in(self, *, pytorch: bool) -> str:
        """Return what to do in a program, which may use PyTorch."""
        return self.remedy if pytorch else self.remedy_elsewhere or self.remedy
