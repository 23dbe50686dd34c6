"""Where Python looks for modules when doctor is started. Imports only what is loaded already."""

import os
import sys

MOST_FOLDERS, MOST_FILES = 64, 4096


def find_own_modules() -> None:
    """Sees to it that Python's own modules are what doctor imports under their names.

    The working folder, which ``python -m`` puts first, is taken off `sys.path`; a folder of PYTHONPATH that holds a
    file or package of such a name, as a ``json.py`` of the job, comes last. The job has the same PYTHONPATH, and
    what it meets there is for the checks to say.
    """
    try:
        folder = os.getcwd()
    except FileNotFoundError:
        folder = ""
    if folder and sys.path[:1] == [folder]:
        del sys.path[0]
    folders = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path][:MOST_FOLDERS]
    for path in dict.fromkeys(os.path.join(folder, path) if folder else path for path in folders):
        if path in sys.path and _hides_own_module(path):
            sys.path.remove(path)
            sys.path.append(path)


def _hides_own_module(folder: str) -> bool:
    try:
        names = {name.removesuffix(".py") for name in os.listdir(folder)[:MOST_FILES]}
    except OSError:
        return False
    return not names.isdisjoint(sys.stdlib_module_names)
