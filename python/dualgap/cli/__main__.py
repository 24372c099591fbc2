"""`python -m dualgap.cli`."""

from dualgap.cli import main

main()
