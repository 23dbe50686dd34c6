"""A diagnosis as its command reports it."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from doctor.diagnose.diagnosis import Diagnosis
from doctor.diagnose.render.diagnosis_report import diagnosis_report
from doctor.diagnose.render.document import SignatureCatalog, document
from doctor.diagnose.signature import load_signatures
from doctor.engine.exit_code import exit_code as code_of_report
from doctor.engine.result import Report

signatures = functools.cache(load_signatures)


def report(diagnosis: Diagnosis, seconds: float = 0.0) -> Report:
    """Its report, without waivers."""
    return diagnosis_report(document(diagnosis, SignatureCatalog(signatures(), {}), 0), seconds=seconds)


def exit_code(diagnosis: Diagnosis) -> int:
    """The exit code of `doctor diagnose`, without waivers."""
    return code_of_report(report(diagnosis))


def general(signature: str, expected: Sequence[str]) -> str:
    """The signature; of an exception that is named by its kind or stage, what a thread says that names none."""
    names = ("program-failed", "python-exception")
    if not signature.startswith(("exception-in-", "exception-of-")) or signature in expected:
        return signature
    return next((name for name in names if name in expected), signature)
