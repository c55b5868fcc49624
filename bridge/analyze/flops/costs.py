"""How FLOPs are counted, and against what they are held: what someone asks for."""

from __future__ import annotations

from dataclasses import dataclass

from bridge.knowledge.formulas.conventions import NAMES, OURS
from bridge.knowledge.hardware import DTYPES, Catalogue, Peaks, catalogue


@dataclass(frozen=True)
class Costs:
    """How to count: by a ``convention`` (of bridge.knowledge.formulas.conventions.NAMES).

    ``dtype`` (of `DTYPES`) is what calls compute in that do not say; "tf32" also what float32 does. The peaks replace what
    is known of every GPU, in every dtype; ``gpus`` are looked up before those that are listed. Raises ValueError for a
    word that is none of them.
    """

    convention: str = OURS
    dtype: str = ""
    peak_tflops: float | None = None
    peak_gbs: float | None = None
    gpus: Catalogue | None = None

    def __post_init__(self) -> None:
        if self.convention not in NAMES:
            raise ValueError(f"no convention {self.convention!r}: one of {', '.join(NAMES)}")
        if self.dtype and self.dtype not in DTYPES:
            raise ValueError(f"no dtype {self.dtype!r}: one of {', '.join(DTYPES)}")

    def peaks(self, name: str, facts: dict[str, int]) -> Peaks:
        """Return what a device can do at most, as asked or as known."""
        known = (self.gpus + catalogue() if self.gpus else catalogue()).peaks(name, facts)
        if self.peak_tflops is None and self.peak_gbs is None:
            return known
        tflops = known.tflops
        if self.peak_tflops is not None:
            tflops = dict.fromkeys(DTYPES, self.peak_tflops)
        return Peaks(tflops, self.peak_gbs or known.gb_per_s, "as asked for")
