"""Figures from an attributed report: frames in, frames out; nothing here reads or prints."""
