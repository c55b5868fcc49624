"""Pictures for papers, drawn by matplotlib without a display: SVG, PNG and PDF, the same bytes for the same input.

Only this room imports matplotlib, which is no part of a plain installation.
"""

from __future__ import annotations
