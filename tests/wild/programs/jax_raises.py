# requires: jax
"""A program that ends with an exception in a step that JAX jits: what is shown are the program's own frames."""

import jax
import jax.numpy as jnp

import watched


def layer(weights, values):
    return jnp.tanh(values @ weights)


@jax.jit
def step(weights, values):
    for one in weights:
        values = layer(one, values)
    return values.sum()


@jax.jit
def branches(value):
    if value > 0:
        return value
    return -value


def main():
    watched.begin()
    weights = [jnp.ones((4, 4)), jnp.ones((4, 3))]
    with watched.watched():
        watched.show("before", float(jax.grad(step)(weights, jnp.ones((2, 4)))[0].sum()))
        try:
            branches(1.0)
        except jax.errors.TracerBoolConversionError as error:
            watched.show("caught", str(error))
            print(error)
        jax.value_and_grad(step)([*weights, jnp.ones((5, 5))], jnp.ones((2, 4)))


if __name__ == "__main__":
    main()
