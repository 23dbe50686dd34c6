"""``python -m doctor.smoke``: the smoke run on the ranks of a job; see `doctor.cli.smoke_launched`."""

import runpy

from doctor.engine.import_path import find_own_modules

if __name__ == "__main__":
    find_own_modules()
    runpy.run_module("doctor.cli.smoke_launched", run_name="__main__")
