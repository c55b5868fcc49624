"""Records the training in data/: run by a Python that has PyTorch, `python record.py FOLDER`; written with PyTorch 2.13 on a CPU.

It writes the trace, less the functions of Python in it, and what PyTorch's own memory profiler takes each
allocation for: [ns of the epoch, address, bytes, category], of those that are the first of a tensor.
"""

import gzip
import json
import sys
import warnings
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, record_function

warnings.simplefilter("ignore")
torch.manual_seed(0)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(32, 4, batch_first=True)
        self.norm = torch.nn.LayerNorm(32)
        self.inner = torch.nn.Sequential(
            torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Dropout(0.1), torch.nn.Linear(64, 32)
        )

    def forward(self, x):
        seen, _ = self.attention(x, x, x)
        return x + self.inner(self.norm(x + seen))


def main(folder):
    model = torch.nn.Sequential(Block(), torch.nn.Flatten(), torch.nn.Linear(32 * 16, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    how = {"profile_memory": True, "record_shapes": True, "with_stack": True}
    with profile(activities=[ProfilerActivity.CPU], **how) as profiled:
        for n in range(3):
            with record_function(f"ProfilerStep#{n}"):
                for _ in range(2):
                    x, y = torch.randn(8, 16, 32), torch.randint(0, 10, (8,))
                    torch.nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
                optimizer.zero_grad(set_to_none=n != 1)
    whole = folder / "whole.json"
    profiled.export_chrome_trace(str(whole))
    trace = json.loads(whole.read_text())
    whole.unlink()
    trace["traceEvents"] = [
        event
        for event in trace["traceEvents"]
        if event.get("cat") in {"cpu_op", "user_annotation", "cpu_instant_event"}
        or event.get("name", "").startswith("nn.Module")
    ]
    for event in trace["traceEvents"]:
        keep = {
            "Bytes",
            "Addr",
            "Device Type",
            "Device Id",
            "Total Allocated",
            "Total Reserved",
            "Sequence number",
        }
        event["args"] = {k: v for k, v in event.get("args", {}).items() if k in keep}
    kept = {k: trace[k] for k in ("schemaVersion", "baseTimeNanoseconds", "traceEvents")}
    _write(folder / "training.pt.trace.json.gz", kept)
    _write(folder / "training.categories.json.gz", _categories(profiled._memory_profile()))


def _categories(found):
    return [
        [time, key.storage.ptr, size, category.name if category else "UNKNOWN"]
        for time, action, (key, version), size in found.timeline
        if action.name == "CREATE" and hasattr(key, "storage")
        for category in (found._categories.get(key, version),)
    ]


def _write(path, data):
    path.write_bytes(gzip.compress(json.dumps(data, separators=(",", ":")).encode(), mtime=0))


main(Path(sys.argv[1]))
