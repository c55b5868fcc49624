"""A program with launches of our own making, and the stand-ins for nsys and ncu that tell of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from made_reports import PUSH_POP, Made, thread
from pretended import HELP

PID, US, STEP = 100, 1_000, 1_000_000
STEPS = 6
# Launches of a step: op, function, blocks, µs.
WORK = (
    ("linear", "gemm", 64, 400),
    ("linear", "gemm", 64, 400),
    ("norm", "add", 128, 60),
    ("head", "gemm", 8, 50),
    ("sync", "ncclDevKernel_AllReduce", 4, 30),
)
PROGRAM = "from pathlib import Path; p = Path('runs'); p.write_text(p.read_text() + 'x' if p.exists() else 'x')"


def launches(steps: int = STEPS, work: tuple = WORK) -> list[dict]:
    """Give all launches in order: those of set-up, then those of each step."""
    setup = [("", "fill", 16, 20)]
    every = [(-1, *one) for one in setup] + [(n, *one) for n in range(steps) for one in work]
    return [
        {
            "step": step,
            "op": op,
            "ops": [f"step {step}", op] if op else [],
            "name": name,
            "mangled": f"_Z{len(name)}{name}Pf",
            "full": f"void {name}(float*)",
            "grid": [blocks, 1, 1],
            "us": us,
            "metrics": metrics(us, blocks),
        }
        for step, op, name, blocks, us in every
    ]


def metrics(us: int, blocks: int) -> dict[str, tuple[str, str]]:
    """Give what ncu says of a kernel: it takes a quarter more; more blocks are more of the memory."""
    peak = "avg.pct_of_peak_sustained"
    return {
        "gpu__time_duration.sum": (str(us * 1_250), "ns"),
        f"sm__throughput.{peak}_elapsed": ("72.5", "%"),
        f"gpu__compute_memory_throughput.{peak}_elapsed": (f"{min(blocks, 90)}", "%"),
        f"sm__warps_active.{peak}_active": ("50", "%"),
    }


def timeline(path: Path, given: list[dict]) -> Path:
    """Write the report of nsys of these launches: each in its op, one after another on the GPU."""
    made = Made()
    made.names_of(PID)
    host = {"thread": thread(PID)}
    at = gpu = STEP
    for step in sorted({one["step"] for one in given}):
        begin = at
        for one in (one for one in given if one["step"] == step):
            if one["op"]:
                made.annotation(PUSH_POP, at, at + 9 * US, text=one["op"], **host)
            names = {"name": "name", "full_name": "full", "mangled": "mangled"}
            columns = {column: made.string(one[key]) for column, key in names.items()}
            extent = {f"{what}_{axis}": 1 for what in ("grid", "block") for axis in "yz"}
            extent |= {"grid_x": one["grid"][0], "block_x": 128}
            gpu = max(gpu, at + 5 * US)
            made.launched("kernels", at + US, PID, gpu, gpu + one["us"] * US, **columns, **extent)
            gpu, at = gpu + one["us"] * US + US, at + 10 * US
        if step >= 0:
            made.annotation(PUSH_POP, begin - 100, at, text=f"step {step}", **host)
        at = max(at, gpu) + US
    return made.written(path)


def install(
    folder: Path, given: list[dict], does: str = "measures", tools: str = "nsys ncu"
) -> Path:
    """Install stand-ins with these launches in a folder, and give it; ``does`` is what ncu does."""
    folder.mkdir(exist_ok=True)
    (folder / "made.sqlite").unlink(missing_ok=True)
    for name in tools.split():
        source = Path(__file__).with_name("stand_in.py").read_text()
        (folder / name).write_text(f"#!{sys.executable}\n{source}")
        (folder / name).chmod(0o755)
    told = {
        "help": {"nsys": f"{HELP}/nsys-2022.4.txt", "ncu": f"{HELP}/ncu-2024.1.txt"},
        "timeline": str(timeline(folder / "made.sqlite", given)),
        "launches": given,
        "ncu": does,
        "tests": str(Path(__file__).parent.parent / "ncu"),
    }
    (folder / "told.json").write_text(json.dumps(told))
    (folder / "absent").mkdir(exist_ok=True)
    (folder / "absent" / "ncu_report.py").write_text("raise ImportError")
    return folder
