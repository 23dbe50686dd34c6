"""``python -m doctor``: the same as the command."""

from doctor.cli.main import main

main()
