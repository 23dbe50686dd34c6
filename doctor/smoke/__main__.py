"""``python -m doctor.smoke``: the smoke run on the ranks of a job; see `doctor.cli.smoke_launched`."""

import runpy

if __name__ == "__main__":
    runpy.run_module("doctor.cli.smoke_launched", run_name="__main__")
