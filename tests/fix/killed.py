"""`doctor fix`, killed at one of its writes to the journal: before it (3-), or right after it (3+)."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from doctor.cli.main import main
from doctor.fix.journal import Journal

WHERE = sys.argv.pop(1)
write = Journal._write
count = 0


def counted(self: Journal, name: str, line: Any) -> None:
    global count
    count += 1
    if f"{count}-" == WHERE:
        os.kill(os.getpid(), signal.SIGKILL)
    write(self, name, line)
    if f"{count}+" == WHERE:
        os.kill(os.getpid(), signal.SIGKILL)


Journal._write = counted  # type: ignore[method-assign]
main()
