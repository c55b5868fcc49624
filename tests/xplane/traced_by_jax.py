"""A small training on the CPU, traced by JAX: ``python tests/xplane/traced_by_jax.py FOLDER``.

``data/cpu-training.xplane.pb`` is what JAX 0.10.2 wrote of it on Linux.
"""

import sys

import jax
import jax.numpy as jnp

STEPS, TURNS = 4, 5


def loss(weights, x):
    with jax.named_scope("net"):
        for number, weight in enumerate(weights):
            with jax.named_scope(f"layer{number}"):
                x = jnp.tanh(x @ weight)
    return (x**2).mean()


@jax.jit
def train_step(weights, x):
    value, slopes = jax.value_and_grad(loss)(weights, x)
    return [weight - 0.1 * slope for weight, slope in zip(weights, slopes, strict=True)], value


@jax.jit
def smooth(x):
    return jax.lax.fori_loop(0, TURNS, lambda _, y: jnp.sin(y) @ y, x)


def main(folder):
    weights, x = [jnp.ones((64, 64)) * 0.01 for _ in range(3)], jnp.ones((32, 64))
    weights, _ = train_step(weights, x)
    smooth(weights[0]).block_until_ready()
    with jax.profiler.trace(folder):
        for step in range(STEPS):
            with jax.profiler.StepTraceAnnotation("train", step_num=step):
                weights, value = train_step(weights, x)
                with jax.profiler.TraceAnnotation("wait here"):
                    value.block_until_ready()
        smooth(weights[0]).block_until_ready()


if __name__ == "__main__":
    main(sys.argv[1])
