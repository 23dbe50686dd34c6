#!/usr/bin/env python3
"""``python -m doctor``, and the installed command: `pyproject.toml` names this file a script of the wheel.

An entry of ``[project.scripts]`` would import `re` first, which takes as long as half an empty Python.
"""

from doctor.engine.import_path import find_own_modules

find_own_modules()

from doctor.cli.main import main  # noqa: E402  # behind the line above, which decides where it looks

main()
