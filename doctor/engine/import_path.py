"""Where Python looks for modules when it is started with ``python -m``. Imports only what is loaded already."""

import os
import sys


def leave_working_folder() -> None:
    """Takes the working folder, which ``python -m`` puts first, off `sys.path`.

    A ``json.py`` of the job that lies there is not Python's own.
    """
    try:
        folder = os.getcwd()
    except FileNotFoundError:
        return
    if sys.path[:1] == [folder]:
        del sys.path[0]
