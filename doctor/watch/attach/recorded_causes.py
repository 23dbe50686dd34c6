"""What `doctor diagnose` reads from the recorders of a job that runs: torch's flight recorder, NCCL RAS."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from doctor.diagnose.run import diagnose_found, diagnose_record
from doctor.diagnose.signature import load_signatures
from doctor.engine.errors import InputError
from doctor.watch.attach.rank_report import HostReport

if TYPE_CHECKING:
    from doctor.diagnose.cause import Diagnosis
    from doctor.diagnose.fetch.saved_logs import LogRecord

MAX_DUMPS = 1024

ReadOnHosts = Callable[[Sequence[str]], "LogRecord"]
"""Reads files, by their paths, on the hosts that have them."""


def recorded_causes(reports: Mapping[str, HostReport], read_on_hosts: ReadOnHosts | None) -> list[str]:
    """A sentence for each cause that the recorders show. ``read_on_hosts``: None where the files lie on this host."""
    sentences: list[str] = []
    signatures = load_signatures()
    dumps = sorted({path for report in reports.values() for rank in report.ranks for path in rank.dumps})[:MAX_DUMPS]
    if dumps:
        try:
            if read_on_hosts is None:
                diagnosis = diagnose_found(dumps, signatures)
            else:
                diagnosis = diagnose_record(read_on_hosts(dumps), signatures)
            sentences += _sentences("flight recorder", diagnosis)
        except InputError as error:
            sentences.append(f"flight recorder: {error}")
    answers = {host: report.ras for host, report in reports.items() if report.ras.strip()}
    if answers:
        with tempfile.TemporaryDirectory(prefix="doctor-ras-") as folder:
            for number, answer in enumerate(answers.values()):
                Path(folder, f"ncclras-{number}.log").write_text(answer, "utf-8", "replace")
            sentences += _sentences("NCCL RAS", diagnose_found([folder], signatures))
    return sentences


def _sentences(source: str, diagnosis: Diagnosis) -> list[str]:
    return [f"{source}: {cause.summary} ({cause.confidence})" for cause in diagnosis.causes[:3]]
