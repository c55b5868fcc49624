"""Only some steps are recorded: the first are skipped, two are warm-up, three are measured, twice.

    nsys profile -t nvtx -c nvtx -p capture@nsight-bridge --capture-range-end=repeat -o report \\
        python examples/schedule.py

makes report.1 and report.2. Without nsys it prints the host's times of each cycle.
"""

import time

import bridge


@bridge.nvtx_op
def compute() -> None:
    time.sleep(0.002)


@bridge.nvtx_op
def exchange() -> None:
    time.sleep(0.001)


def ready(session: bridge.Session) -> None:
    table = session.by("op")
    print(f"steps up to {session.step_num - 1}")
    print(table[["op", "calls", "cpu_self_ns"]].to_string(index=False))


cycle = bridge.schedule(skip_first=1, wait=1, warmup=2, active=3, repeat=2)
with bridge.profile(schedule=cycle, on_trace_ready=ready) as session:
    for _ in range(14):
        compute()
        exchange()
        session.step()
