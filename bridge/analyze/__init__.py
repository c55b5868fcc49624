"""Compute tables and figures from an attributed capture: frames in, frames out, without I/O."""
