"""Write a large Nsight Systems export with a known truth, for measurements.

    python benchmarks/make_report.py OUT.sqlite KERNELS [--per-call-text] [--threads N] [--processes N]

A training run in shape: 8 ops a layer, 48 layers a step, one kernel per op, so K kernels come with K API
calls and 1.13 K ranges of depth 3. Each of the 8 ops owns an eighth of the kernels; none is left over.
"""

import argparse
import sqlite3
from contextlib import closing
from itertools import chain
from pathlib import Path

from bridge.importers.nsys import schema
from bridge.importers.nsys.write import Strings, write_export

LAYERS = 48
OPS = [f"aten::{n}" for n in "linear layer_norm softmax gelu add bmm dropout copy_".split()]
KERNELS = 64
TABLES = {
    "kernels": "start end device context stream correlation process name full_name mangled registers"
    " grid_x grid_y grid_z block_x block_y block_z shared_static shared_dynamic",
    "launches": "start end thread correlation name result",
    "annotations": "start end type thread domain text text_id",
}
UNREAD = {  # what nsys writes besides; rows must be as wide as real ones, and nsys stats asks for some
    "kernels": "launchType cacheConfig localMemoryPerThread localMemoryTotal gridId"
    " sharedMemoryExecuted sharedMemoryLimitConfig",
    "launches": "eventClass",
    "annotations": "rangeId endGlobalTid floatValue",
}
STEPS_AT_ONCE = 200


def lane(thread, strings, steps, per_call_text):
    """Yield the rows of one thread, some steps at a time."""
    clock, gpu, correlation = 1_000_000_000 + thread % 997, 0, (thread & 0xFF) * 100_000_000
    process = thread & ~schema.THREAD_BITS
    names = [strings(f"vectorized_elementwise_kernel_{n}") for n in range(KERNELS)]
    texts, launch = [strings(op) for op in OPS], strings("cudaLaunchKernel_v7000")
    layers = [strings(f"layer_{n}") for n in range(LAYERS)]
    rows = {table: [] for table in TABLES}
    for step in range(steps):
        begin = clock
        for layer in range(LAYERS):
            outer, clock = clock, clock + 300
            for n, op in enumerate(OPS):
                correlation += 1
                gpu = max(gpu, clock + 5_000) + 700
                took = 2_000 + correlation * 7_919 % 9_000
                name = names[(layer * len(OPS) + n) % KERNELS]
                rows["launches"].append(
                    (clock + 1_500, clock + 5_000, thread, correlation, launch, 0)
                )
                shape = (128, 1, 1, 256, 1, 1, 0, 0)
                where = (0, 1, 7 + (thread & 0xFF), correlation, process)
                rows["kernels"].append((gpu, gpu + took, *where, name, name, name, 32, *shape))
                text = (
                    f"{op}, seq = {correlation}, op_id = {correlation}" if per_call_text else None
                )
                text_id = None if per_call_text else texts[n]
                rows["annotations"].append((clock, clock + 6_000, 59, thread, 0, text, text_id))
                clock, gpu = clock + 6_000, gpu + took
            clock += 300
            rows["annotations"].append((outer, clock, 59, thread, 0, None, layers[layer]))
        clock += 500
        rows["annotations"].append((begin, clock, 59, thread, 0, f"step {step}", None))
        if step % STEPS_AT_ONCE == STEPS_AT_ONCE - 1 or step == steps - 1:
            rows["annotations"].sort()
            yield rows
            rows = {table: [] for table in TABLES}


def make(path, kernels, *, per_call_text=False, threads=1, processes=1):
    """Write the report and return how many kernels it has."""
    path.unlink(missing_ok=True)
    strings = Strings()
    write_export(
        path, {table: [dict.fromkeys(columns.split())] for table, columns in TABLES.items()}
    )
    lanes = [(0x1000 + p) << 24 | (0x1000 + t) for p in range(processes) for t in range(threads)]
    steps = max(1, kernels // (LAYERS * len(OPS) * len(lanes)))
    with closing(sqlite3.connect(path)) as db, db:
        for table in TABLES:
            db.execute(f"DELETE FROM {schema.READ[table].name}")
            for column in UNREAD[table].split():
                filled = "INTEGER DEFAULT 0" if table != "annotations" else "INTEGER"
                db.execute(f"ALTER TABLE {schema.READ[table].name} ADD COLUMN {column} {filled}")
        for rows in chain.from_iterable(lane(t, strings, steps, per_call_text) for t in lanes):
            for table, columns in TABLES.items():
                known = schema.READ[table]
                names = ", ".join(f'"{known.columns[c].sources[0]}"' for c in columns.split())
                marks = ", ".join("?" * len(columns.split()))
                db.executemany(f"INSERT INTO {known.name} ({names}) VALUES ({marks})", rows[table])
    write_export(
        path,
        {"strings": strings.rows()},
        {schema.PRODUCT_VERSION: "2024.6.2", schema.SCHEMA_VERSION: "3.16.1"},
    )
    return steps * LAYERS * len(OPS) * len(lanes)


def main():
    args = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    args.add_argument("out", type=Path)
    args.add_argument("kernels", type=int)
    args.add_argument("--threads", type=int, default=1)
    args.add_argument("--processes", type=int, default=1)
    args.add_argument("--per-call-text", action="store_true")
    a = args.parse_args()
    made = make(
        a.out, a.kernels, per_call_text=a.per_call_text, threads=a.threads, processes=a.processes
    )
    print(f"{a.out}: {made} kernels, {a.out.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
