"""Stand-ins for nsys and ncu: run as either, they do what $STAND_IN says with the program that they are given.

That of nsys copies a timeline that was made before. That of ncu knows the launches of the program, measures those that
its ``--kernel-id`` selects as NVIDIA's manual says, and writes them as a report that it prints again as CSV.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

MAGIC, NO_HEAD = b"NVR\0", b"\0\0\0\0"


def told() -> dict:
    return json.loads(Path(os.environ["STAND_IN"]).read_text())


def option(words: list[str], name: str) -> str:
    return next((w.partition("=")[2] for w in words if w.startswith(f"{name}=")), "")


def program_of(words: list[str]) -> list[str]:
    """Give the words from the first that is no option on."""
    return words[next(n for n, word in enumerate(words) if not word.startswith("-")) :]


def varint(number: int) -> bytes:
    result = b""
    while number > 0x7F:
        result, number = result + bytes([number & 0x7F | 0x80]), number >> 7
    return result + bytes([number])


def report(results: int, printed: str) -> bytes:
    """Give a report of so many results with one block, whose payload is what is printed of it."""
    payload = printed.encode()
    head = b"\x10" + varint(results) + b"\x28" + varint(len(payload))
    return MAGIC + NO_HEAD + len(head).to_bytes(4, "little") + head + payload


def matches(pattern: str, text: str) -> bool:
    """Match an invocation number: whole, or as a regular expression."""
    return pattern == text or re.fullmatch(pattern, text) is not None


def selected(launches: list[dict], words: list[str]) -> list[dict]:
    """Give the launches that the filters of ncu leave, each with its number among those of its kernel."""
    context, stream, rest = option(words, "--kernel-id").split(":", 2)
    assert not context
    assert not stream
    name, _, numbers = rest.rpartition(":")
    base = {"mangled": "mangled", "function": "name"}[option(words, "--kernel-name-base")]
    pattern = name.removeprefix("regex:") if name.startswith("regex:") else f"^{re.escape(name)}$"
    seen: dict[str, int] = {}
    result = []
    for launch in launches:
        seen[launch[base]] = seen.get(launch[base], 0) + 1
        if re.search(pattern, launch[base]) and matches(numbers, str(seen[launch[base]])):
            result.append({**launch, "number": seen[launch[base]]})
    return result[: int(option(words, "--launch-count"))]


def nsys(words: list[str]) -> int:
    if words[0] == "export":
        if "--help" not in words:
            shutil.copy(words[-1], words[words.index("--output") + 1])
        return 0
    status = subprocess.run(program_of(words[1:]), check=False).returncode
    shutil.copy(told()["timeline"], option(words, "--output"))
    return status


def ncu(words: list[str]) -> int:
    if words[0] == "--import":
        data = Path(words[1]).read_bytes()
        sys.stdout.buffer.write(data[data.index(b'"ID"') :])
        return 0
    does, log = told()["ncu"], Path(option(words, "--log-file"))
    measured = selected(told()["launches"], words) if does != "none" else []
    said = [f'==PROF== Profiling "{one["name"]}": 0%....100% - 8 passes' for one in measured]
    if does == "permission":
        measured, said = (
            [],
            ["==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access"],
        )
    if not measured and does == "none":
        said.append("==WARNING== No kernels were profiled.")
    status = subprocess.run(program_of(words), check=False).returncode
    log.write_text("\n".join([*said, ""]))
    if does == "signal":
        time.sleep(30)
    Path(os.environ["STAND_IN"]).with_name("measured.json").write_text(json.dumps(measured))
    if measured:
        sys.path.insert(0, told()["tests"])
        from made_ncu import kernel, raw

        rows = [
            kernel(
                "other" if does == "renames" else one["full"],
                pushed=one["ops"],
                grid=one["grid"],
                metrics=one["metrics"],
            )
            for one in measured
        ]
        whole = report(len(rows), raw(rows))
        Path(option(words, "--export")).write_bytes(whole[:-9] if does == "cut" else whole)
    return 1 if does == "permission" else status


def main() -> int:
    name, words = Path(sys.argv[0]).name, sys.argv[1:]
    if words in (["--help"], ["profile", "--help"]):
        sys.stdout.write(Path(told()["help"][name]).read_text())
        return 0
    if words == ["--version"]:
        sys.stdout.write("NVIDIA Nsight version 2024.1.1-abc\n")
        return 0
    return {"nsys": nsys, "ncu": ncu}[name](words)


if __name__ == "__main__":
    sys.exit(main())
