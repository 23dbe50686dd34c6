"""What ``doctor watch --data`` needs on a host: the hooks as files, and a folder for the digests."""

from __future__ import annotations

from pathlib import Path

from doctor.engine.errors import UsageError
from doctor.watch.data.analyze import DataReport, analyze_records
from doctor.watch.hook.data_hooks import SCHEDULE, parse_schedule
from doctor.watch.hook.digest_folder import FOLDER

FILES = (
    "data_hooks", "data_collection", "channel", "digest", "digest_folder", "digest_records", "batch_indices",
    "gradient_sketch", "group_use", "module_values",
)  # fmt: skip
"""Of ``doctor/watch/hook/``: they lie beside each other, in a folder that is on no path."""
MAX_FILES, MAX_BYTES = 4096, 65 << 20
_HOOKS = Path(__file__).parent / "hook"


class DataFolder:
    """In the folder of a watch: ``data-hooks/``, and ``digests/``, into which the ranks write."""

    def __init__(self, path: Path) -> None:
        self.hooks, self.digests = path / "data-hooks", path / "digests"

    def fill(self) -> None:
        """Writes the hooks. Raises: OSError."""
        self.hooks.mkdir()
        self.digests.mkdir()
        for name in FILES:
            (self.hooks / f"{name}.py").write_text((_HOOKS / f"{name}.py").read_text("utf-8"), "utf-8")

    def environment(self, schedule: str) -> dict[str, str]:
        """The variables that the ranks need: where to write, and when (``10,100``; empty: the probe alone)."""
        return {FOLDER: str(self.digests), **({SCHEDULE: schedule} if schedule else {})}

    def report(self) -> DataReport:
        """What the digests show that were written until now. Files beyond the limits are left out."""
        paths = sorted(path for path in self.digests.glob("*.probe") if path.is_file() and not path.is_symlink())
        return analyze_records(_head(path) for path in paths[:MAX_FILES])


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES)
    except OSError:
        return b""


def require_schedule(text: str) -> str:
    """The value of ``--data``. Raises: UsageError."""
    if text and parse_schedule(text) is None:
        raise UsageError(f"--data {text}: expected the first steps and an interval, such as 10,100")
    return text
