"""What ``doctor watch --data`` needs on a host: the hooks as files, a folder for digests, and the report in words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from doctor.engine.errors import UsageError
from doctor.watch.data.analyze import DataReport, analyze_records
from doctor.watch.hook.channel import FOLDER
from doctor.watch.hook.data_hooks import SCHEDULE, parse_schedule

FILES = (
    "data_hooks",
    "data_collection",
    "channel",
    "digest",
    "digest_records",
    "batch_indices",
    "gradient_sketch",
    "group_use",
    "module_values",
)
"""Of ``doctor/watch/hook/``: they lie beside each other, in a folder that is on no path."""
PROBE_FILES = ("digest", "channel", "digest_records")
"""Of them, what the probe needs."""
MAX_FILES, MAX_BYTES = 4096, 65 << 20
_HOOKS = Path(__file__).parent / "hook"
_FUTURE = "from __future__ import annotations\n"
_OWN_IMPORT = re.compile(r"^from (?:doctor\.[\w.]+|\.\w+) import (?:\([^)]*\)|[^\n(]*)\n", re.MULTILINE)


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


def report_lines(report: DataReport) -> Sequence[str]:
    """The report in words, a line each: causes, consequences, notes, what was inferred, what was not seen."""
    lines = [f"{cause.level}: {cause.check}: {cause.text}" for cause in report.causes]
    lines += [f"  follows from {cause}: {defect.text}" for defect, cause in report.consequences]
    lines += [f"note: {defect.text}" for defect in report.notes]
    lines += [f"inferred: {text}" for text in report.inferred]
    lines += [f"unknown: {text}" for text in report.unseen]
    if report.steps and not report.causes:
        lines.append(f"data and values agree in {report.steps} digested steps")
    if not report.steps:
        lines.append("unknown: no forward pass was digested: no optimizer and no wrapped model was seen")
    return lines


def probe_text() -> str:
    """The probe as one file that needs nothing of doctor: ``doctor probe --print > probe.py``."""
    probe = Path(__file__).parent / "probe.py"
    documentation, rest = probe.read_text("utf-8").split(_FUTURE, 1)
    parts = [(_HOOKS / f"{name}.py").read_text("utf-8").split(_FUTURE, 1)[1] for name in PROBE_FILES]
    return documentation + _FUTURE + "".join(_OWN_IMPORT.sub("", text) for text in (*parts, rest))
