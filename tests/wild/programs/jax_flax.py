# requires: flax, jax, optax
"""JAX: a model of flax trained by optax, jitted; vmap, scan, gradients, donated buffers, callbacks, eager ops."""

import functools

import jax
import jax.numpy as jnp
import optax
from flax import linen, nnx

import watched

TRACED = []


class Net(linen.Module):
    @linen.compact
    def __call__(self, values, train=False):
        hidden = linen.relu(linen.Dense(16)(values))
        hidden = linen.Dropout(0.1, deterministic=not train)(hidden)
        return linen.Dense(3)(linen.LayerNorm()(hidden))


class Newer(nnx.Module):
    def __init__(self, random):
        self.linear = nnx.Linear(8, 4, rngs=random)
        self.calls = nnx.Variable(jnp.array(0))

    def __call__(self, values):
        self.calls[...] += 1
        return jnp.tanh(self.linear(values))


def main():
    watched.begin()
    net = Net()
    key = jax.random.key(0)
    parameters = net.init(key, jnp.ones((1, 8)))
    optimizer = optax.adamw(0.01)
    state = optimizer.init(parameters)

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(parameters, state, values, labels, key):
        TRACED.append(values.shape)

        def loss(parameters):
            outputs = net.apply(parameters, values, train=True, rngs={"dropout": key})
            return optax.softmax_cross_entropy_with_integer_labels(outputs, labels).mean()

        value, gradients = jax.value_and_grad(loss)(parameters)
        updates, state = optimizer.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state, value

    @jax.jit
    def summed(values):
        return jax.lax.scan(lambda total, one: (total + one, total * one), 0.0, values)

    @nnx.jit
    def newer_loss(module, values):
        return module(values).sum()

    losses, heard = [], []
    with watched.watched():
        for number in range(20):
            key, one, two, three = jax.random.split(key, 4)
            values = jax.random.normal(one, (8 if number < 15 else 5, 8))
            labels = jax.random.randint(two, (len(values),), 0, 3)
            parameters, state, value = step(parameters, state, values, labels, three)
            losses.append(float(value))
            watched.step()
        rows = jax.vmap(jax.grad(lambda one: jnp.sin(one).sum()))(jnp.ones((3, 4)))
        second = jax.hessian(lambda one: (one**3).sum())(jnp.arange(3.0))
        scanned = summed(jnp.arange(5.0))
        eager = jnp.linalg.norm(jnp.ones(4)) + jnp.fft.fft(jnp.arange(4.0)).real.sum()
        newer = Newer(nnx.Rngs(0))
        newest = newer_loss(newer, jnp.ones((2, 8)))
        jax.jit(lambda one: jax.debug.callback(lambda got: heard.append(float(got)), one))(2.5)
        jax.effects_barrier()
        lowered = jax.jit(jnp.sin).lower(1.0).compile()(1.0)
        printed = str(jax.make_jaxpr(lambda one: summed(one)[0] * 2)(jnp.arange(3.0)))
    watched.show("losses", *losses)
    watched.show("parameters", *jax.tree.leaves(parameters))
    watched.show("others", rows, second, *scanned, eager, newest, newer.calls[...], lowered)
    watched.show("heard", *heard, str(TRACED), step.__name__, type(step).__name__)
    print(printed)


if __name__ == "__main__":
    main()
