"""Two ways to scale the rows of a matrix, timed at three sizes; then both at once.

python examples/benchmark.py
bridge bench examples/benchmark.py::by_division --inputs matrix --sweep n=64,256,1024
"""

import numpy as np

import bridge


def matrix(n):
    return np.random.default_rng(0).standard_normal((n, 64), np.float32)


def by_division(x):
    return x / np.sqrt((x * x).sum(axis=1, keepdims=True))


def by_einsum(x):
    return x * (1 / np.sqrt(np.einsum("ij,ij->i", x, x)))[:, None]


def main():
    found = [
        bridge.bench.op(way, matrix(n), runs=20)
        for n in (64, 256, 1024)
        for way in (by_division, by_einsum)
    ]
    print(bridge.bench.table(found))
    x = matrix(1024)
    print(bridge.bench.group([(by_division, (x,)), (by_einsum, (x,))], streams=[0, 1]))
    # bridge.bench.save(found, "now.jsonl"), and later: bridge diff now.jsonl later.jsonl


if __name__ == "__main__":
    main()
