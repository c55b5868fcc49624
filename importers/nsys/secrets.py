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
SECRET = re.compile(
    r"TOKEN|KEY|SECRET|PASS|PWD|CRED|AUTH|COOKIE|PRIVATE|_URL$|_URI$|DSN|CONN|WEBHOOK",
    re.IGNORECASE,
)
WHOSE = frozenset("USER LOGNAME USERNAME SUDO_USER SLURM_JOB_USER HOSTNAME HOST".split())
# Values that tell nothing, and that stand in names: a kernel's <float, false>, a function find_root.
COMMON = frozenset("true false none null root user admin default localhost python".split())
LETTER = re.compile(r"[A-Za-z0-9]")
VARIABLE = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
LOGIN = re.compile(r"://([^/\s:@]+)(?::([^/\s@]+))?@")  # of an address
# Folders of machines, not of models: "/layers/0/attn" is a fine name. A home's owner goes even where nothing follows.
ROOTS = (
    r"tmp|var|opt|usr|mnt|media|srv|etc|proc|run|work|workspace|workdir|scratch|project|projects|data|datasets"
    r"|lustre|gpfs|nfs|fsx|efs|s3|gs|Volumes|private|content|kaggle|shared|storage|cluster"
)
PART = r"[^/\\:;,\"'()<>|\r\n]+"
FOLDERS = re.compile(
    rf"(?:/(?:home\d*|homes|Users)/{PART}|[A-Za-z]:\\Users\\{PART}|/root|(?<![\w:])~\w+(?=/))(?:[/\\](?:{PART}[/\\])*|(?=$|[^\w/\\]))"
    rf"|(?:/(?:{ROOTS})|[A-Za-z]:(?=\\))(?:[/\\]{PART})*[/\\]"
)


@dataclass
class Secrets:
    """Words that are to go, and how often each kind went."""

    words: set[str] = field(default_factory=set)
    variables: set[str] = field(default_factory=set)  # names, of environment variables
    cleaned: int = 0  # texts that were changed

    def environment(self, text: str) -> None:
        """Learn from variables, NAME=value with a NUL or a line's end between."""
        name = ""
        for entry in re.split(r"[\0\n]", text):
            found = VARIABLE.fullmatch(entry)
            if found:
                name = found[1]
                self.variables.add(name)
            # A line that names no variable goes on with the value of the last.
            value = found[2] if found else entry
            if SECRET.search(name) or name in WHOSE:
                self.learn([value, *(word for pair in LOGIN.findall(value) for word in pair)])

    def host(self, name: str) -> None:
        """Learn the name of a machine, whole and without its domain."""
        self.learn([name, name.partition(".")[0]])

    def learn(self, words: Iterable[str]) -> None:
        """Have these words go wherever they stand."""
        told = (word.strip() for word in words)
        self.words |= {
            word
            for word in told
            if len(word) >= SHORTEST and word.lower() not in COMMON and not _is_number(word)
        }

    def clean(self, text: str | None) -> str | None:
        """Return a text without any of them, its paths without their folders."""
        if text is None:
            return None
        found = self._known.sub(REMOVED, FOLDERS.sub("…/", text))
        self.cleaned += found != text
        return found

    def in_it(self, text: str) -> bool:
        """Tell whether one of the words stands in a text."""
        return self._known.search(text) is not None

    @cached_property
    def _known(self) -> re.Pattern[str]:
        """All words, as whole words; to be asked for when all are learnt."""
        longest_first = sorted(self.words, key=len, reverse=True)
        return re.compile("|".join(map(_whole, longest_first)) or r"(?!)", re.IGNORECASE)


def _whole(word: str) -> str:
    """Return a pattern for a word as a whole; an end that is no letter or digit parts it from whatever follows."""
    before, after = (LETTER.match(end) is not None for end in (word[0], word[-1]))
    return f"{'(?<![A-Za-z0-9])' if before else ''}{re.escape(word)}{'(?![A-Za-z0-9])' if after else ''}"


def _is_number(word: str) -> bool:
    return word.replace(".", "").replace("-", "").isdigit()
