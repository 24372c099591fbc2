"""Entry point of `python -m dualgap.cli`."""

from dualgap.cli import main

main(prog_name="dualgap")
