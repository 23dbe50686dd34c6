"""``python -m doctor``: the same as the command."""

from doctor.cli import main

main()
