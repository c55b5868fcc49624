"""Workers load data in processes of their own; each has its ranges and its recording.

    bridge run examples/data_loading.py

The workers are spawned: nsys does not trace forked ones, see `bridge doctor`.
"""

import multiprocessing
import time

from bridge import nvtx_op


@nvtx_op(args=("number",))
def decode(number: int) -> bytes:
    time.sleep(0.001)
    return bytes(number)


@nvtx_op
def load(numbers: range) -> int:
    return sum(len(decode(number)) for number in numbers)


if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        with nvtx_op("wait for data"):
            sizes = pool.map(load, [range(start, start + 4) for start in range(0, 32, 4)])
        pool.close()
        pool.join()  # a worker that is terminated loses its last ranges
    print(f"{sum(sizes)} bytes, loaded in {len(sizes)} pieces")
