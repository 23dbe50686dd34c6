"""`doctor`, with Python text put behind that of its worker: ``python -m tests.smoke.faulty FILE smoke ...``."""

from __future__ import annotations

import sys
from pathlib import Path

from doctor.smoke import sources

if __name__ == "__main__":
    from doctor.cli import main

    whole = sources.worker
    text = Path(sys.argv.pop(1)).read_text("utf-8")
    sources.worker = lambda: whole() + "\n\n" + text
    main()
