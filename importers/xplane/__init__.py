"""Profiles of JAX and TensorFlow as their profiler writes them: XSpace, `.xplane.pb`."""
