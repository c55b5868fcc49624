r"""Regular expressions of users, in Python's syntax, each with a limit on the time of its searches.

The `re` module tries every way to match: ``(a|aa)+$`` takes hours on a name of 100 letters. These
expressions are searched by the `regex` module, which stops at a limit. The limits are in CPU time,
so that a busy machine changes no answer.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import Any

from bridge.knowledge.package import UserError

LIMIT_S = 0.5  # CPU time of all searches of an expression, beyond what is usual for a text
USUAL_S = 100e-6  # for a text; an ordinary expression takes a tenth of this
MAX_LENGTH = 10_000  # characters; to compile more would take seconds
SHOWN_LENGTH = 40  # characters of an expression in a message


class SlowExpressionError(UserError):
    """The searches of an expression took longer than the limit."""

    status = 2


@dataclass(frozen=True)
class Expression:
    """A regular expression of a user.

    Attributes:
        text: the expression, in the syntax of Python's `re`.
        origin: where it was given, for messages: an option, or a rule of a file.

    Raises ValueError with a message for the user if it is not valid.

    """

    text: str
    origin: str
    pattern: Any = field(init=False, repr=False, compare=False)
    spent: list[float] = field(init=False, repr=False, compare=False, default_factory=lambda: [0.0])

    def __post_init__(self) -> None:
        import regex  # takes 20 ms, and few commands need it

        if not isinstance(self.text, str):
            raise ValueError(  # noqa: TRY004 - an error of the file
                f"{self.origin}: a regular expression is a text, not {self.text!r}"
            )
        if len(self.text) > MAX_LENGTH:
            raise ValueError(
                f"{self.origin}: the regular expression has over {MAX_LENGTH} characters; divide it"
            )
        try:
            re.compile(self.text)  # the syntax is that of `re`, of which `regex` knows more
            object.__setattr__(self, "pattern", regex.compile(self.text, regex.VERSION0))
        except (re.error, regex.error, OverflowError, RecursionError) as error:
            raise ValueError(
                f"{self.origin}: {_shortened(self.text)} is no regular expression: {error}"
            ) from error

    def search(self, text: str) -> Any:
        """Return the first match anywhere in a text, or None. Raises `SlowExpressionError`."""
        return self._limited(self.pattern.search, text)

    def match(self, text: str) -> Any:
        """Return the match at the start of a text, or None. Raises `SlowExpressionError`."""
        return self._limited(self.pattern.match, text)

    def _limited(self, search: Any, text: str) -> Any:
        start = time.thread_time()
        try:
            result = search(text, timeout=max(LIMIT_S - self.spent[0], 0.0))
        except TimeoutError as error:
            raise SlowExpressionError(
                f"{self.origin}: {_shortened(self.text)} takes over {LIMIT_S} s to search;"
                " avoid alternatives and repetitions within a repetition, as in (a|aa)+"
            ) from error
        self.spent[0] += max(time.thread_time() - start - USUAL_S, 0.0)
        return result


def _shortened(text: str) -> str:
    return repr(text if len(text) <= SHOWN_LENGTH else f"{text[: SHOWN_LENGTH - 1]}…")
