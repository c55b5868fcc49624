"""What must not stand in a name that stays: host and user, secret variables, folders of this machine.

What is found is what a report says of itself; a secret that a program puts into the name of a range, and that
is nowhere else in the report, cannot be known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

REMOVED = "(removed)"
SHORTEST = 4  # characters: "vm" as the name of a host would be found in every second word
SECRET = re.compile(r"TOKEN|KEY|SECRET|PASS|CRED|AUTH|COOKIE|PRIVATE", re.IGNORECASE)
PEOPLE = frozenset("USER LOGNAME USERNAME SUDO_USER SLURM_JOB_USER HOSTNAME HOST".split())
VARIABLE = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
# Folders of machines, not of models: "/layers/0/attn" is a fine name.
FOLDERS = re.compile(
    r"(?:/(?:home|root|Users|tmp|var|opt|usr|mnt|media|srv|etc|proc|workspace|scratch|lustre|gpfs|nfs)|[A-Za-z]:(?=\\))"
    r"(?:[/\\][^/\\\s:;,\"'()]+)*[/\\](?=[^/\\\s:;,\"'()]*)"
)


@dataclass
class Secrets:
    """Words that are to go, and how often each kind went."""

    words: set[str] = field(default_factory=set)
    variables: set[str] = field(default_factory=set)  # names, of environment variables
    cleaned: int = 0  # texts that were changed

    def environment(self, text: str) -> None:
        """Learn from variables, NAME=value with a NUL or a line's end between."""
        for entry in re.split(r"[\0\n]", text):
            found = VARIABLE.fullmatch(entry)
            if found:
                self.variables.add(found[1])
                if SECRET.search(found[1]) or found[1] in PEOPLE:
                    self.learn([found[2]])

    def learn(self, words: Iterable[str]) -> None:
        """Have these words go wherever they stand."""
        self.words |= {word for word in words if len(word) >= SHORTEST}

    def clean(self, text: str | None) -> str | None:
        """Return a text without any of them, its paths without their folders."""
        if text is None:
            return None
        found = self._known.sub(REMOVED, FOLDERS.sub("…/", text))
        self.cleaned += found != text
        return found

    @cached_property
    def _known(self) -> re.Pattern[str]:
        """All words; to be asked for when all are learnt."""
        longest_first = sorted(self.words, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
