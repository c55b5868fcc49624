"""What `ncu --csv` prints, of our own making."""

from __future__ import annotations

import csv
import io

PUSHED = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
STARTED = "Id:Domain:Start/Stop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
OF_KERNEL = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream"]
GEOMETRY = ["Block Size", "Grid Size", "Device", "CC"]
DEFAULT = "<default domain>"
NOTHING = "none:none:none:none:none:none"
DURATION = "gpu__time_duration.sum"


def frame(name, domain=DEFAULT, after=NOTHING):
    return f'"{domain}:{name}:{after}"'


def kernel(  # noqa: PLR0913
    name="k",
    *,
    pid=7,
    thread=1,
    pushed=(),
    started=(),
    grid=(8, 2, 1),
    block=(128, 1, 1),
    metrics=None,
):
    """One kernel: `pushed` are names or cells of ranges, outermost first; `started` (id, name)."""
    cells = "  ".join(frame(p) if isinstance(p, str) else frame(*p) for p in pushed)
    phases = "  ".join(f'"{n}:{DEFAULT}:{text}:{NOTHING}"' for n, text in started)
    return {
        "pid": pid,
        "name": name,
        "pushed": f"{thread}  {cells}" if cells else "",
        "started": phases,
        "grid": str(tuple(grid)),
        "block": str(tuple(block)),
        "metrics": {DURATION: ("1,000", "ns")} if metrics is None else metrics,
    }


def _cells(number, one):
    own = [number, one["pid"], "python3", "host", one["name"], 1, 7]
    return own, [one["block"], one["grid"], 0, "9.0"]


def raw(kernels, *, nvtx=True, before="", after=""):
    """The raw page as text."""
    names = list(dict.fromkeys(name for one in kernels for name in one["metrics"]))
    units = {name: one["metrics"][name][1] for one in kernels for name in one["metrics"]}
    ranges = [PUSHED, STARTED] if nvtx else []
    rows = [[*OF_KERNEL[:4], *ranges, *OF_KERNEL[4:], *GEOMETRY, *names]]
    rows.append([""] * (len(rows[0]) - len(names)) + [units[name] for name in names])
    for number, one in enumerate(kernels):
        own, geometry = _cells(number, one)
        nested = [one["pushed"], one["started"]] if nvtx else []
        values = [one["metrics"].get(name, ("", ""))[0] for name in names]
        rows.append([*own[:4], *nested, *own[4:], *geometry, *values])
    return before + written(rows) + after


def details(kernels, *, rules=(), nvtx=False):
    """The details page as text: of each kernel its metrics by (section, name), then all rules."""
    ranges = [PUSHED, STARTED] if nvtx else []
    head = [*OF_KERNEL[:4], *ranges, *OF_KERNEL[4:], *GEOMETRY]
    head += ["Section Name", "Metric Name", "Metric Unit", "Metric Value"]
    head += ["Rule Name", "Rule Type", "Rule Description"]
    head += ["Estimated Speedup Type", "Estimated Speedup"]
    rows = [head]
    for number, one in enumerate(kernels):
        own, geometry = _cells(number, one)
        nested = [one["pushed"], one["started"]] if nvtx else []
        common = [*own[:4], *nested, *own[4:], *geometry]
        rows += [
            [*common, section, name, unit, value, ""]  # ends early, as ncu's rows do
            for (section, name), (value, unit) in one["metrics"].items()
        ]
        rows += [[*common, rule[0], "", "", "", *rule[1:]] for rule in rules]
    return written(rows)


def written(rows):
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    return text.getvalue()
