"""Hold what bridge makes of a capture against what `program.py --expect` says was launched.

    python hold_against_truth.py truth.json REPORT… [--graphs node|graph] [--session] [--label NAME]

Prints one line of JSON and PASS or FAIL lines; exits 1 where anything differs. Compared are: the number of kernels,
memcpys (by direction) and memsets of each op, those of no op and the reasons that are allowed for them, start and end,
and that no activity lacks the call that launched it.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

import bridge


def main() -> int:
    options = _options()
    said = json.loads(options.truth.read_text(encoding="utf-8"))
    expected = _expected(said["truth"], graphs=options.graphs, session=options.session)
    run = bridge.load(*options.reports)
    activities, owners = run.capture.activities, run.op_kernels
    table = activities.to_pandas().join(owners.drop(columns="report").reset_index(drop=True))
    problems: list[str] = []
    found: Counter[tuple[str, str]] = Counter()
    reasons: Counter[str] = Counter()
    for row in table.to_dict("records"):
        op = row["op"] if isinstance(row["op"], str) else ""
        name = _called(row)
        if name is None:  # migrations of managed memory: not counted
            continue
        found[op.rpartition(".")[2], name] += 1
        if not op:
            reasons[str(row["reason"])] += 1
        if not row["start"] < row["end"]:
            problems.append(f"{name}: from {row['start']} to {row['end']}")
        if str(row["reason"]) == "no_launch":
            problems.append(f"{name} at {row['start']}: no call launched it")
    for key in sorted(expected.keys() | found.keys()):
        if expected[key] != found[key]:
            problems.append(
                f"op {key[0]!r}, {key[1]}: {found[key]} found, {expected[key]} launched"
            )
    label = options.label or options.reports[0].name
    print(json.dumps({
        "label": label, "activities": sum(found.values()), "expected": sum(expected.values()),
        "outside": dict(reasons), "rules": {str(k): int(v) for k, v in table["rule"].value_counts().items()},
        "skipped": said["skipped"], "warnings": [str(w) for w in run.warnings], "wrong": len(problems),
    }))  # fmt: skip
    for problem in problems[:30]:
        print(f"FAIL {label}: {problem}")
    if not problems:
        print(f"PASS {label}: {sum(found.values())} activities, each where it was launched")
    return bool(problems)


def _expected(rows: list[list], *, graphs: str, session: bool) -> Counter[tuple[str, str]]:
    made: Counter[tuple[str, str]] = Counter()
    for scene, op, what, count in rows:
        if scene == "not captured" or (session and scene == "setup"):
            continue
        if graphs == "graph" and scene in ("graphs", "built"):
            continue
        made[op, what] += count
    if graphs == "graph":
        seen = {row[0] for row in rows}
        made.update({("replay", "[graph]"): 4} if "graphs" in seen else {})
        made.update({("replay of built", "[graph]"): 3} if "built" in seen else {})
    return made


def _called(row: dict) -> str | None:
    kind, name = str(row["kind"]), str(row["name"])
    if kind == "kernel":
        return name
    if kind == "graph":
        return "[graph]"
    if kind == "memset":
        return "[memset]"
    return None if "Unified" in name else name.removeprefix("[CUDA memcpy ").rstrip("]")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("truth", type=Path)
    parser.add_argument("reports", type=Path, nargs="+")
    parser.add_argument("--graphs", default="node")
    parser.add_argument("--session", action="store_true")
    parser.add_argument("--label", default="")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
