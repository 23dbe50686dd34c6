"""`doctor`, with Python text put behind that of its worker: ``python -m tests.smoke.faulty FILE smoke ...``."""

from __future__ import annotations

import sys
from pathlib import Path

from doctor.smoke.run import programs

if __name__ == "__main__":
    from doctor.cli.main import main

    worker_source = programs.worker
    text = Path(sys.argv.pop(1)).read_text("utf-8")
    programs.worker = lambda: worker_source() + "\n\n" + text
    main()
