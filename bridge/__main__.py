"""Entry point of the command ``bridge``, also ``python -m bridge``."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` without `enum`, which takes time
import atexit
import gc
import os
import sys

from bridge.knowledge.package import VERSION

GC_THRESHOLD = (
    200_000  # objects between garbage collections; objects of libraries stay alive anyway
)


def command(name: str | None = None) -> None:
    """Run the command line; does not return."""
    # Until `bridge.cli.main` runs, Ctrl-C ends the process without the traceback of an import.
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    _open_standard_streams()
    if sys.argv[1:] == ["--version"] and _prints_version():
        sys.exit()
    from bridge.cli import main
    from bridge.cli.terminal import make_stdout_harmless

    make_stdout_harmless()
    gc.set_threshold(GC_THRESHOLD)
    atexit.register(gc.disable)  # avoids a last collection at exit
    main(prog_name=name)


def _prints_version() -> bool:
    """Print what `bridge --version` prints, without click, which doubles the time; False if that fails."""
    try:
        sys.stdout.write(f"nsight-bridge, version {VERSION}\n")
        sys.stdout.flush()
    except OSError:
        return False
    return True


def _open_standard_streams() -> None:
    """Open the standard streams that are closed (`>&-`).

    A file that the command opens would take the number of a closed stream, and get what is printed.
    Writing to this stdout fails, so that a command tells when its output is lost.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_WRONLY if name == "stderr" else os.O_RDONLY)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            stream = os.fdopen(number, "w" if number else "r", encoding="utf-8", closefd=False)
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)


if __name__ == "__main__":
    command("python -m bridge")
