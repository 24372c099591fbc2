"""Entry point of `python -m dualgap`."""

from dualgap.cli import main

main(prog_name="dualgap")
