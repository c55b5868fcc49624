"""The page of `bridge html`: one file that needs no network; a stylesheet and scripts beside this package."""
