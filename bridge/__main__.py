"""``python -m bridge``, where the command's name is another program's."""

from bridge.cli import main

main(prog_name="python -m bridge")
