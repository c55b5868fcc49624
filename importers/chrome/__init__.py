"""Traces of other profilers in Chrome's JSON format: MXNet, MegEngine, RAF, TensorFlow, TVM."""
