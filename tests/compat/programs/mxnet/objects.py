"""Everything that a program can annotate: domain, task, frame, event, counter, marker."""

import torch

from bridge.compat.mxnet import profiler

profiler.set_config(
    filename="objects.json", aggregate_stats=True, profile_api=False, profile_memory=False
)
profiler.set_state("run")

domain = profiler.Domain("My Domain")
task = domain.new_task("task")
frame = domain.new_frame("frame")
event = profiler.Event("event")
counter = domain.new_counter("counter", 5)
marker = domain.new_marker("marker")

task.start()
for _ in range(3):
    frame.start()
    event.start()
    torch.ones(4, 4) + 1
    event.stop()
    frame.stop()
    counter += 2
task.stop()
counter -= 4
for scope in ("global", "process", "thread", "task", "marker"):
    marker.mark(scope)

profiler.pause()
torch.zeros(3)
profiler.resume()
profiler.set_state("stop")
print(profiler.dumps())
profiler.dump()
