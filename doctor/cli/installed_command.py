#!/usr/bin/env python3
"""The installed `doctor` command: `pyproject.toml` names this file a script of the wheel.

An entry of ``[project.scripts]`` would import `re` first, which takes as long as half an empty Python.
"""

import sys

from doctor.cli.main import main

if __name__ == "__main__":
    sys.exit(main())  # type: ignore[func-returns-value]
