"""Logs to a diagnosis: the one function that the command calls."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from doctor.diagnose.cause import Diagnosis
from doctor.diagnose.decide import diagnose
from doctor.diagnose.read.readings import read_all
from doctor.diagnose.read.sources import find_sources
from doctor.diagnose.signature import Signature, load_signatures

CAUSE_NAMED, UNDECIDED, NO_FAILURE, NOTHING = 10, 12, 0, 78
"""Exit codes: a cause was found; it cannot be decided; the run ended well; nothing to read."""


def diagnose_logs(
    paths: Sequence[str], signature_folders: Sequence[Path] = ()
) -> tuple[Diagnosis, dict[str, Signature]]:
    """The diagnosis of the logs at these paths, with the signatures it refers to.

    Raises: InputError (exit code 78) for a path that does not exist; SignatureError for a site's bad signature.
    """
    signatures = load_signatures(signature_folders)
    return diagnose(read_all(find_sources(paths), signatures), signatures), signatures


def exit_code(diagnosis: Diagnosis) -> int:
    """10: a cause was found. 12: a failure without a cause, or no end of the run. 0: it ended well. 78: no lines."""
    if not any(summary.lines for summary in diagnosis.files):
        return NOTHING
    if diagnosis.causes:
        return CAUSE_NAMED
    return NO_FAILURE if diagnosis.ended_well else UNDECIDED
