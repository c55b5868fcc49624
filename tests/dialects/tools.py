"""Run by the Python that has the trace tools, which take seconds to load: the scripts here, one for each line of the input.

A line is JSON, ``[script, path]``; the answer is one line too: ``[what the script printed last, traceback or null]``.
"""

import contextlib
import io
import json
import runpy
import sys
import traceback

answers, sys.stdout = sys.stdout, sys.stderr
for line in sys.stdin:
    script, path = json.loads(line)
    sys.argv = [script, path]
    printed, error = io.StringIO(), None
    try:
        with contextlib.redirect_stdout(printed):
            runpy.run_path(script, run_name="__main__")
    except Exception:
        error = traceback.format_exc()
    said = printed.getvalue().splitlines()
    print(json.dumps([said[-1] if said else None, error]), file=answers, flush=True)
