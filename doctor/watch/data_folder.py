"""What ``doctor watch --data`` needs on a host: the hooks as files, and a folder for the digests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from doctor.engine.errors import UsageError
from doctor.engine.texts import filled
from doctor.watch.data.data_report import DataReport, analyze_records
from doctor.watch.hook.data_hooks import SCHEDULE, parse_schedule
from doctor.watch.hook.digest_folder import FOLDER

FILES = (
    "data_hooks", "data_collection", "channel", "digest", "digest_folder", "digest_records", "batch_indices",
    "gradient_sketch", "gradient_totals", "group_use", "mask_draws", "module_values", "shard_holders", "step_records",
    "called_modules", "checkpoint_calls", "data_position", "held_values", "loaded_contents", "resume_marks",
    "training_state",
)  # fmt: skip
"""Of ``doctor/watch/hook/``: they lie beside each other, in a folder that is on no path."""
MAX_FILES, MAX_BYTES = 4096, 65 << 20
MAX_SAVED = 8 << 20
"""Bytes of the digests of all processes that a saved run keeps."""
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
        return analyze_records(_head(path, MAX_BYTES) for path in self._paths())

    def saved(self) -> dict[str, str]:
        """The digests as a saved run keeps them, by the file's name: whole lines, of each file an equal share."""
        paths = self._paths()
        share = MAX_SAVED // max(len(paths), 1)
        return {path.stem: _whole_lines(_head(path, share + 1), share) for path in paths}

    def _paths(self) -> list[Path]:
        paths = (path for path in self.digests.glob("*.probe") if path.is_file() and not path.is_symlink())
        return sorted(paths)[:MAX_FILES]


def saved_report(digests: Mapping[str, str]) -> DataReport:
    """What digests show that a saved run has kept. Those that were cut count as not complete."""
    return analyze_records(text.encode("ascii", "replace") for text in digests.values())


def _whole_lines(content: bytes, most: int) -> str:
    """Of what is longer than ``most`` bytes the lines before, and one that says that it was cut."""
    if len(content) <= most:
        return content.decode("ascii", "replace")
    lines = content[: content.rfind(b"\n", 0, most) + 1].decode("ascii", "replace")
    ranks = re.findall(r'"r":(\d{1,7})[,}]', lines[-1000:])
    return f'{lines}{{"k":"cut","r":{ranks[-1] if ranks else 0},"ms":0}}\n'


def _head(path: Path, most: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(most)
    except OSError:
        return b""


def require_schedule(text: str) -> str:
    """The value of ``--data``. Raises: UsageError."""
    if text and parse_schedule(text) is None:
        raise UsageError(filled("--data {0}: expected the first steps and an interval, such as 10,100", text))
    return text
