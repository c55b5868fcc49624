"""Several cycles in one table, metadata, an id of one's own, and kinds of activity that change meanwhile."""

import json

import torch

from bridge.compat.torch_profiler import (
    ProfilerAction,
    ProfilerActivity,
    profile,
    record_function,
    supported_activities,
)

x = torch.randn(32, 32)


def every_second(step):
    return ProfilerAction.RECORD_AND_SAVE if step % 2 else ProfilerAction.NONE


with profile(
    activities=[ProfilerActivity.CPU],
    schedule=every_second,
    acc_events=True,
    custom_trace_id_callback=lambda: "mine",
) as prof:
    for _ in range(6):
        x @ x
        prof.step()

print(prof.key_averages().table(sort_by="count"))
print(prof.get_trace_id(), ProfilerActivity.CPU in supported_activities())

with profile(activities=[ProfilerActivity.CPU]) as prof:
    prof.add_metadata("note", "a text")
    prof.add_metadata_json("config", json.dumps({"lr": 0.1}))
    with record_function("recorded", "with an argument"):
        x.add(1)
    prof.toggle_collection_dynamic(False, [ProfilerActivity.CPU])
    x.mul(2)
    prof.toggle_collection_dynamic(True, [ProfilerActivity.CPU])
    x.sub(3)

print(prof.key_averages().table(sort_by="cpu_time", time_unit="us", header="One cycle"))
print(prof.key_averages().total_average().key)
prof.export_chrome_trace("trace.json.gz")
