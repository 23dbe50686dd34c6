"""``python -m doctor``: the same as the command.

Python looks first into the working folder then: a ``json.py`` of the job that lies there is not Python's own.
"""

import os
import sys

try:
    working_folder = os.getcwd()
except FileNotFoundError:
    working_folder = ""
if sys.path[:1] == [working_folder]:
    del sys.path[0]

from doctor.cli.main import main

main()
