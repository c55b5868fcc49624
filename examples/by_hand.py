"""A training loop annotated by hand, on NumPy alone.

bridge run examples/by_hand.py
"""

import numpy as np

from bridge import counter, mark, nvtx_op, nvtx_range

generator = np.random.default_rng(0)
weights = generator.normal(size=(16, 1))
loss_of_step = counter("loss")


@nvtx_op
def load(rows: int = 64) -> tuple[np.ndarray, np.ndarray]:
    inputs = generator.normal(size=(rows, 16))
    return inputs, inputs.sum(axis=1, keepdims=True)


@nvtx_op(shapes=True, flops="auto")  # goes to a recording beside the report
def matmul(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return left @ right


@nvtx_op(args=("rate",))
def update(gradient: np.ndarray, rate: float = 0.01) -> None:
    weights[:] -= rate * gradient


for epoch in range(2):
    with nvtx_range(f"epoch {epoch}"):  # a phase: it owns no kernels, and may overlap others
        for _ in range(5):
            with nvtx_op("step", category="training"):
                inputs, target = load()
                with nvtx_op("forward"):
                    error = matmul(inputs, weights) - target
                with nvtx_op("backward"):
                    gradient = matmul(inputs.T, error) / len(inputs)
                update(gradient)
            loss_of_step.set(float((error**2).mean()))
        mark("epoch ended", payload=epoch)
print(f"loss {loss_of_step.value:.3f}")
