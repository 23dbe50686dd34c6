"""What travels with a watched program by environment: a folder with one ``sitecustomize.py``, which nothing installs.

Python 3.8, torch 2.1, the standard library alone. The interpreter runs it at its start, as the folder is first in
PYTHONPATH; it goes on to the user's own ``sitecustomize``. It imports nothing of torch: it waits until the program has
imported ``torch.distributed``, and begins to record when the program forms its process group. What it cannot do it
leaves out and says so in the rank's events; the program never sees an error of it.
"""

from __future__ import annotations

from doctor.smoke.run.programs import joined_text


def hook_text() -> str:
    """The text of ``sitecustomize.py``. Each part keeps its own file name in stacks."""
    return joined_text("doctor-watch", "doctor.watch.hook.start")
