"""Labels of ranges: name, domain, category and colour, checked and converted for tools.

`text` converts any text of a user into bytes that every nsys version records.
"""

from __future__ import annotations

from typing import Any, NamedTuple

# nsys silently drops messages of 65 535 bytes and more (seen with 2022.4.2).
MAX_BYTES = 65_000
_WHITE = 0xFFFFFFFF
AUTO = -1  # the colour is chosen by the name

COLORS = {
    "black": 0xFF000000, "blue": 0xFF0000FF, "brown": 0xFFA52A2A, "coral": 0xFFFF7F50,
    "crimson": 0xFFDC143C, "cyan": 0xFF00FFFF, "darkblue": 0xFF00008B, "darkgreen": 0xFF006400,
    "darkred": 0xFF8B0000, "gold": 0xFFFFD700, "gray": 0xFF808080, "green": 0xFF008000,
    "grey": 0xFF808080, "indigo": 0xFF4B0082, "khaki": 0xFFF0E68C, "lavender": 0xFFE6E6FA,
    "lightblue": 0xFFADD8E6, "lightgreen": 0xFF90EE90, "lime": 0xFF00FF00, "magenta": 0xFFFF00FF,
    "maroon": 0xFF800000, "navy": 0xFF000080, "olive": 0xFF808000, "orange": 0xFFFFA500,
    "orchid": 0xFFDA70D6, "pink": 0xFFFFC0CB, "plum": 0xFFDDA0DD, "purple": 0xFF800080,
    "rapids": 0xFF7400FF, "red": 0xFFFF0000, "salmon": 0xFFFA8072, "silver": 0xFFC0C0C0,
    "skyblue": 0xFF87CEEB, "tan": 0xFFD2B48C, "teal": 0xFF008080, "tomato": 0xFFFF6347,
    "turquoise": 0xFF40E0D0, "violet": 0xFFEE82EE, "white": 0xFFFFFFFF, "yellow": 0xFFFFFF00,
}  # fmt: skip


# The colours of "auto", which are distinct on black and on white.
PALETTE = ("coral", "gold", "lime", "teal", "skyblue", "indigo", "orchid", "tomato", "tan", "gray")


class Label(NamedTuple):
    """The attributes that all calls of an op share; domain None is NVTX's default domain."""

    name: str
    domain: str | None = None
    category: str | None = None
    color: int | None = None


def color_of(label: Label) -> int | None:
    """Return the colour as 0xAARRGGBB or None; an automatic colour depends only on the name."""
    if label.color != AUTO:
        return label.color
    from zlib import crc32  # needed for "auto" only

    return COLORS[PALETTE[crc32(text(label.name)) % len(PALETTE)]]


Extras = tuple[str | None, str | None, int | None]
PLAIN: Extras = (None, None, None)


def checked(domain: Any, category: Any, color: Any) -> Extras:
    """Return domain, category and colour as a label holds them.

    Raises TypeError for other types.
    """
    if not (domain is None or isinstance(domain, str)):
        raise TypeError(f"nvtx_op: a domain is a string, not {domain!r}")
    if not (category is None or isinstance(category, str)):
        raise TypeError(f"nvtx_op: a category is a string, not {category!r}")
    return domain or None, category or None, argb(color)


def checked_name(name: Any) -> str:
    """Return the name; raises TypeError if it is not a string."""
    if not isinstance(name, str):
        raise TypeError(f"a name is a string, not {name!r}")
    return name


def argb(color: Any) -> int | None:
    """Return a colour as 0xAARRGGBB.

    Accepts a name, "#rrggbb", an integer 0xAARRGGBB, or "auto".
    """
    if color is None:
        return None
    if color == "auto":
        return AUTO
    if isinstance(color, str):
        return COLORS.get(color) or COLORS.get(color.lower()) or _hexadecimal(color)
    if isinstance(color, int) and not isinstance(color, bool) and 0 <= color <= _WHITE:
        return color
    raise _no_color(color)


def checked_payload(payload: Any) -> float | None:
    """Return a payload that fits into 64 bits: a signed integer or a float.

    Raises TypeError otherwise.
    """
    if payload is None or isinstance(payload, float):
        return payload
    if isinstance(payload, bool) or not isinstance(payload, int):
        raise TypeError(f"nvtx_op: a payload is an int or a float, not {payload!r}")
    if not -(1 << 63) <= payload < 1 << 63:
        raise TypeError(
            f"nvtx_op: a payload is a signed integer of 64 bits; {payload} does not fit"
        )
    return payload


def text(value: str) -> bytes:
    """Return UTF-8 without NULs and lone surrogates, cut to a length that nsys records."""
    whole = value.encode("utf-8", "backslashreplace").replace(b"\0", b"\\0")
    return (
        whole if len(whole) <= MAX_BYTES else whole[:MAX_BYTES].decode("utf-8", "ignore").encode()
    )


def _hexadecimal(color: str) -> int:
    digits = color.removeprefix("#")
    if len(digits) + 1 != len(color) or len(digits) != 6:  # noqa: PLR2004 (rr, gg, bb)
        raise _no_color(color)
    try:
        return 0xFF000000 | int(digits, 16)
    except ValueError as error:
        raise _no_color(color) from error


def _no_color(color: object) -> TypeError:
    return TypeError(
        f"nvtx_op: {color!r} is not a colour;"
        " use a common name, '#rrggbb', 'auto' or an integer 0xAARRGGBB"
    )
