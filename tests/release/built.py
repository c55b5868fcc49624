"""What is built of the project: a wheel and an sdist of the tree, and a wheel of that sdist."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

from real_parts import ROOT, unpack


def uv(*words: str | Path, folder: Path = ROOT) -> str:
    """Run uv; raise AssertionError with what it said where it fails."""
    command = [str(Path(sys.executable).with_name("uv")), *map(str, words)]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


def build(folder: Path, source: Path, *, what: str) -> Path:
    """Build the wheel or the sdist of a source, a folder or an sdist, and return it; needs no network."""
    tools = ("--no-build-isolation", "--offline", "--python", sys.executable)
    uv("build", "-q", *tools, f"--{what}", "--out-dir", folder, source)
    [made] = folder.glob("*.whl" if what == "wheel" else "*.tar.gz")
    return made


def of_wheel(path: Path) -> dict[str, str]:
    """Return a hash of each file in a wheel."""
    with zipfile.ZipFile(path) as wheel:
        return {n: hashlib.sha256(wheel.read(n)).hexdigest() for n in wheel.namelist()}


def unpacked(sdist: Path, folder: Path) -> Path:
    """Unpack an sdist, and return the one folder that it holds."""
    unpack(sdist, folder)
    [inside] = folder.iterdir()
    return inside
