# requires: keras, torch
"""Keras on PyTorch: fit with callbacks, evaluate, predict, save and load, a layer and a step of the program's own."""

import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np
import torch

import watched


class Scaled(keras.layers.Layer):
    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones", name="scale")

    def call(self, values):
        return values * self.scale


class Marks(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        watched.step()


def main():
    watched.begin()
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((8,)),
            keras.layers.Dense(16, activation="relu"),
            keras.layers.BatchNormalization(),
            Scaled(),
            keras.layers.Dropout(0.1),
            keras.layers.Dense(3),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(0.01),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    values, labels = np.random.randn(64, 8).astype("float32"), np.random.randint(0, 3, 64)
    with watched.watched(model):
        fitted = model.fit(values, labels, batch_size=16, epochs=3, verbose=0, callbacks=[Marks()])
        evaluated = model.evaluate(values, labels, verbose=0)
        predicted = model.predict(values[:5], verbose=0)
        model.save("model.keras")
        loaded = keras.models.load_model("model.keras", custom_objects={"Scaled": Scaled})
        again = loaded(torch.from_numpy(values[:5]))
    watched.show(
        "history", *(one for name in sorted(fitted.history) for one in fitted.history[name])
    )
    watched.show("evaluated", *evaluated)
    watched.show("predicted", predicted, again)
    watched.show("weights", *model.get_weights())


if __name__ == "__main__":
    main()
