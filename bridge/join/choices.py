"""What a user may choose of how activities are attributed, in one piece to hand through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bridge.join.labels import Rule
from bridge.knowledge.kernels import Rules

GRAPHS = ("capture", "launch")


@dataclass(frozen=True)
class Choices:
    """``rules`` regroup ops; ``raw`` takes whole texts over all domains instead of ops.

    ``graphs`` says whose the work of a CUDA graph is: the op's that it was captured in, where that
    is known, or the one's that launched the graph. Raw texts go by the launch unless told otherwise,
    as NVIDIA's reports do.

    ``domains`` are those whose ranges are ops ("all" for every one), without any all but libraries'
    own; ``without`` are left out of them. ``adopt`` gives work of threads without a range to the
    range that one other thread waits in: a guess by time. ``kernel_rules`` say what kernels are, before
    the built-in ones. ``rank_from`` is a regular expression that finds the rank in the path of a file, ``place``
    the number of the first report among those of the whole run, of which others may be read elsewhere.
    """

    rules: Sequence[Rule] = ()
    raw: bool = False
    graphs: str | None = None
    domains: Sequence[str] = ()
    without: Sequence[str] = ()
    adopt: bool = False
    kernel_rules: Rules | None = None
    rank_from: str | None = None
    place: int = 0

    @property
    def only(self) -> Sequence[str]:
        """Domains whose ranges are ops, as `bridge.join.domains.accepted` takes them."""
        return self.domains or (("all",) if self.raw else ())

    @property
    def prefer_capture(self) -> bool:
        """Whether work of a graph belongs where it was captured."""
        return (self.graphs or GRAPHS[self.raw]) == "capture"
