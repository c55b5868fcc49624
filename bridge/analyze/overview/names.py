"""Names as numbers: what is named in many places is written once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from bridge.join.order import NONE, Ints


class Names:
    """Hands out a number per distinct name: its place in ``listed``."""

    def __init__(self) -> None:
        self.listed: list[str] = []
        self._known: dict[str, int] = {}

    def of(self, texts: Iterable[str]) -> list[int]:
        """Return the number of each name."""
        return [self._number(str(text)) for text in texts]

    def of_some(self, texts: Iterable[str]) -> list[int]:
        """Return the number of each name, -1 where it is ''."""
        return [self._number(str(text)) if text else NONE for text in texts]

    def of_codes(self, codes: Ints, texts: Sequence[str]) -> list[int]:
        """Return the number of each row's name, given as a code into ``texts`` or NONE; -1 for none."""
        used, code = np.unique(codes, return_inverse=True)
        ours = [NONE if u == NONE else self._number(str(texts[u])) for u in used.tolist()]
        return np.array(ours, np.int64)[code].tolist() if ours else []

    def _number(self, text: str) -> int:
        if text not in self._known:
            self._known[text] = len(self.listed)
            self.listed.append(text)
        return self._known[text]
