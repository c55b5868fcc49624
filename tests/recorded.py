"""What every command prints and writes for every file of the corpus, to be the same after the code has moved.

    python tests/recorded.py write FOLDER      # all outputs, a file each
    python tests/recorded.py check             # against the hashes in tests/recorded.json
    python tests/recorded.py hash              # write those hashes

Two processes, some minutes. A working tool: it goes when the rooms stand.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CORPUS = ROOT.parent / "shared" / "corpus"
HASHES = ROOT / "tests" / "recorded.json"
VIEWS = (
    "op op-kernel kernel copy range module forward-op phase wait launch gap idle step device rule collective skew"
    " op,shape path,kind thread,direction kernel,stream,geometry api,op rank,host,report step,phase,process dtype,library,fused"
).split()
REPORTS = [
    *([f"report --by {by} --columns all --format json" if "," in by or by in ("op", "kernel", "op-kernel", "copy") else f"report --by {by} --format json"] for by in VIEWS),
    ["report"], ["report --by kernel --format csv"], ["report --by op,kernel"], ["report --by op-kernel --inclusive --format json"],
    ["report --by op-kernel --names raw --format csv"], ["report --by op --names raw --direction backward --format markdown"],
    ["trace -o t.json"], ["trace -o t.pftrace"], ["trace --slim -o t.json"],
    *([f"trace --dialect {name} -o t.json"] for name in ("torch", "raf", "mxnet", "megengine")),
    ["flame"], ["flame --format speedscope -o t.speedscope.json"], ["html -o t.html"], ["memory"], ["memory --by allocation --format json"],
    ["memory --by summary"], ["advise"], ["advise --format json"], ["advise --format sarif"], ["quality"], ["quality --format json"], ["ranks"],
    ["why kernel"], ["import --db t.db"],
]  # fmt: skip
COUNTERS = [["report --format json"], ["report --by rule --format json"], ["report --by kernel --columns all --format csv"], ["report"], ["html -o t.html"], ["import --db t.db"]]  # fmt: skip


def files() -> list[tuple[str, ...]]:
    found = sorted(p for room in ("nsys", "kineto", "ncu") for p in (CORPUS / room).iterdir())
    pairs = [("pytorch-2gpu-before", "pytorch-2gpu-after"), ("pytorch-forward", "pytorch-backward")]
    return [
        *((str(p),) for p in found),
        *((str(CORPUS / "nsys" / f"{a}.sqlite"), str(CORPUS / "nsys" / f"{b}.sqlite")) for a, b in pairs),
    ]  # fmt: skip


def commands(names: tuple[str, ...]) -> list[list[str]]:
    if len(names) == 2:
        kinds = ("op", "op-kernel", "kernel", "step", "op,kind")
        return [*([f"diff --by {by} --format json"] for by in kinds), ["diff"], ["report"], ["trace -o t.json"], ["diff --html t.html"]]  # fmt: skip
    return COUNTERS if "/ncu/" in names[0] else REPORTS


def outputs(names: tuple[str, ...]) -> dict[str, bytes]:
    """Run all commands on one file (or two) and give what each printed and wrote."""
    from click.testing import CliRunner

    sys.path[:0] = [str(ROOT)]
    from bridge.cli import main

    os.environ["COLUMNS"] = "200"
    found = {}
    for [command] in commands(names):
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            result = CliRunner().invoke(main, [*command.split(), *names])
            key = f"{'+'.join(Path(n).name for n in names)} {command}"
            found[f"{key} status"] = f"{result.exit_code} {result.exception!r}".encode()
            found[f"{key} stdout"] = scrubbed(result.stdout_bytes, folder)
            found[f"{key} stderr"] = scrubbed(result.stderr_bytes, folder)
            for path in sorted(Path(folder).glob("t.*")):
                data = dumped(path) if path.suffix == ".db" else path.read_bytes()
                found[f"{key} {path.name}"] = scrubbed(data, folder)
    return found


def dumped(path: Path) -> bytes:
    import sqlite3

    with contextlib.closing(sqlite3.connect(path)) as database:
        lines = [line for line in database.iterdump() if not line.startswith('INSERT INTO "runs"')]
    return "\n".join(lines).encode()


def scrubbed(data: bytes, folder: str) -> bytes:
    data = data.replace(folder.encode(), b"FOLDER").replace(str(CORPUS).encode(), b"CORPUS")
    return re.sub(rb"\b\d+([.]\d+)? (s|ms)\b(?= to| for|,? read)", b"TIME", data)


def run() -> dict[str, bytes]:
    with ProcessPoolExecutor(2) as pool:
        return {k: v for part in pool.map(outputs, sorted(files(), key=size)) for k, v in part.items()}  # fmt: skip


def size(names: tuple[str, ...]) -> int:
    return -sum(Path(name).stat().st_size for name in names)


def main() -> int:
    found = run()
    hashes = {key: hashlib.sha256(value).hexdigest()[:16] for key, value in sorted(found.items())}
    if sys.argv[1] == "write":
        for key, value in found.items():
            (Path(sys.argv[2]) / key.replace("/", "_").replace(" ", "~")).write_bytes(value)
    elif sys.argv[1] == "hash":
        HASHES.write_text(json.dumps(hashes, indent=0) + "\n")
    else:
        before = json.loads(HASHES.read_text())
        changed = [
            key for key in before.keys() | hashes.keys() if before.get(key) != hashes.get(key)
        ]
        sys.stdout.write("\n".join([*sorted(changed), f"{len(changed)} of {len(before)} differ\n"]))
        return bool(changed)
    sys.stdout.write(f"{len(found)} outputs\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
