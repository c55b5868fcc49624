"""Lines of text broken at a width, in which numbers keep their units and commands stay in one piece."""

from __future__ import annotations

import re
import textwrap

GAP = "\N{NO-BREAK SPACE}"
UNIT_GAP = re.compile(r"(?<=\d) (?=[^\W\d]|%)")  # between a number and its unit
WORD = r"""(?:'[^']*'|"[^"]*"|,(?!\s)|[^\s'"();,])+"""  # of a command, as a shell reads it
COMMAND = re.compile(rf"(?:→ )?\bbridge [a-z-]+(?: {WORD})*")


def wrap(text: str, width: int) -> list[str]:
    """Return the lines of a text; a command is not broken, even if it is longer than a line."""
    glued = COMMAND.sub(lambda command: command[0].replace(" ", GAP), UNIT_GAP.sub(GAP, text))
    has_command = glued != UNIT_GAP.sub(GAP, text)
    lines = textwrap.wrap(
        glued, width, break_long_words=not has_command, break_on_hyphens=not has_command
    )
    return [line.replace(GAP, " ") for line in lines]
