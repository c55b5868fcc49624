"""One line of a recording as JSON, whatever texts and numbers a program has.

The invariant: a line is strict JSON in UTF-8. What JSON cannot say is said as text: NaN and the
infinities by their names, lone surrogates spelled out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any


def encoded(line: Mapping[str, Any], default: Callable[[Any], Any] | None = repr) -> bytes:
    """Return a line without its end; raises TypeError for what is no JSON, unless ``default`` makes it so."""
    try:
        text = _json(line, default)
    except ValueError:  # a float that is no number; looked for only then
        text = _json(_finite(line), default)
    try:
        return text.encode()
    except UnicodeEncodeError:
        # Two backslashes: to JSON one is the beginning of the surrogate itself.
        parts = (c if c.isascii() else _spelled(c) for c in text)
        return "".join(parts).encode()


def _json(line: Any, default: Callable[[Any], Any] | None) -> str:
    import json  # noqa: PLC0415 (5 ms, and most programs write nothing)

    return json.dumps(
        line, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=default
    )


def _spelled(character: str) -> str:
    return character.encode("utf-8", "backslashreplace").decode().replace("\\", "\\\\")


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"  # noqa: PLR0124
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return value
