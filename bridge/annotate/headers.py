"""Folders of C and C++ headers: `nsight_bridge.h`, and NVTX 3, which it includes."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

HEADER, NVTX = "nsight_bridge.h", "nvtx3/nvToolsExt.h"


def get_include() -> str:
    """Return the folder of `nsight_bridge.h`."""
    return str(Path(__file__).parent / "include")


def include_folders() -> list[str]:
    """Return the folders that a compiler needs: that of `nsight_bridge.h`, and that of NVTX.

    The latter comes from the wheel `nvidia-nvtx`; without one that has headers, the compiler must find
    NVTX itself, for example in the CUDA toolkit.
    """
    return [get_include(), *_nvtx_folders()[-1:]]


def _nvtx_folders() -> list[str]:
    spec = find_spec("nvidia")
    roots = (spec.submodule_search_locations if spec else None) or ()
    found = (path for root in roots for path in Path(root).glob(f"*/include/{NVTX}"))
    return sorted(str(path.parents[1]) for path in found)
