"""What a rule is, and what it finds.

The invariant: a rule judges only what the report can tell; what it needs is said beside it, never guessed in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from bridge.analyze.advice.seen import Seen

UNKNOWN = -1  # ns, where nothing sound can be said
NOT_ESTIMATED = "none"
THE_RUN, KERNEL_TIME = "the run", "kernel time"
# Where rules come from.
TENSORBOARD = "PyTorch's TensorBoard plugin"
TIDY = "TorchTidy"
NSYS = "Nsight Systems' expert rules"
HERE = "nsight-bridge"
NSIGHT_COMPUTE = "Nsight Compute"


@dataclass(frozen=True)
class Finding:
    """What a rule has found: the figures of its sentence, and the rows that show it, the largest first.

    The ends of their names say what figures are: ``_ns``, ``_share`` (of 1), ``_bytes``; else a count or a text.

    Removing the cause saves about ``saving_ns`` of the run and at most ``ceiling_ns``; of several GPUs or
    processes, which wait for one another, that of the one with most. -1 where nothing sound can be said.
    """

    figures: Mapping[str, object]
    evidence: pd.DataFrame
    ceiling_ns: int = UNKNOWN
    saving_ns: int = UNKNOWN


@dataclass(frozen=True)
class Rule:
    """A rule: what it is about, when it fires, the sentence that takes its figures, what to do, how its saving is estimated, where it comes from, and what it reads.

    ``needs`` are names of `needs.NEEDS`; ``find`` returns None, or no finding, where all is well.
    """

    name: str
    title: str
    when: str
    said: str
    remedy: str
    estimate: str
    source: str
    needs: tuple[str, ...]
    find: Callable[[Seen], Finding | Iterable[Finding] | None]


@dataclass(frozen=True)
class Advice:
    """A rule that applies; ``share`` is the fraction of the run that its ceiling is, -1 where that is not known.

    ``of`` is what it is a fraction of, in words: of a report without a timeline not the run.
    """

    rule: Rule
    finding: Finding
    share: float
    of: str = THE_RUN


@dataclass(frozen=True)
class NotJudged:
    """A rule for which the report holds too little: what is missing, and what records it."""

    rule: Rule
    missing: str
    record: str
