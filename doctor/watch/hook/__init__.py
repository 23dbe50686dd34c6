"""What travels with a watched program by environment: a folder with one ``sitecustomize.py``, which nothing installs.

Python 3.8, torch 2.1, the standard library alone. The interpreter runs it at its start, as the folder is first in
PYTHONPATH; it goes on to the user's own ``sitecustomize``. It imports nothing of torch: it waits until the program has
imported ``torch.distributed``, and begins to record when the program forms its process group. What it cannot do it
leaves out and says so in the rank's events; the program never sees an error of it.
"""

from __future__ import annotations

from pathlib import Path

from doctor.smoke.run.programs import part, without_own_imports

SHARED_PARTS = ("host_texts", "recorder_page", "flight_recorder")
PARTS = ("rank_files", "collectives", "training", "mindspore_ranks", "start")
"""In the order in which they run."""


def hook_text() -> str:
    """The text of ``sitecustomize.py``. Each part keeps its own file name in stacks."""
    sources = {f"doctor-watch/{name}.py": part(name) for name in SHARED_PARTS}
    folder = Path(__file__).parent
    sources.update(
        (f"doctor-watch/{name}.py", without_own_imports((folder / f"{name}.py").read_text("ascii"))) for name in PARTS
    )
    return "".join(f"exec(compile({source!r}, {name!r}, 'exec'))\n" for name, source in sources.items())
