"""What tools printed of ill devices is found on the right device; what they printed of sound ones is nothing."""

from __future__ import annotations

import pytest

from doctor.engine.catalog import load_checks
from doctor.engine.evaluate import evaluate_check
from doctor.engine.fact import Output
from doctor.engine.result import Outcome
from doctor.facts.gpu import GpuInventory, NvidiaSmi
from doctor.job import LaunchConfig
from tests.checks.run_check import Facts
from tests.facts.answers import learned
from tests.facts.device_reports import HEALTHY, SICK, Report

HOSTS = ("w1", "w2")
"""That answer alike: what concerns the network between hosts is judged of two."""
CHECKS = [check for check in load_checks() if check.area not in ("smoke", "launch")]


class Printed(Facts):
    """What the readers make of the texts; facts of which nothing was printed are absent."""

    def __init__(self, report: Report) -> None:
        super().__init__({host: [] for host in HOSTS})
        for fact, text in report.printed.items():
            parts = {key: Output(out=part) for key, part in (text if isinstance(text, dict) else {"": text}).items()}
            for reader in (fact, NvidiaSmi) if fact is GpuInventory else (fact,):
                self._facts |= {(host, reader): learned(reader, parts) for host in HOSTS}


def outcomes(report: Report) -> dict[str, Outcome]:
    """Of the checks that read what was printed."""
    facts, intent = Printed(report), {LaunchConfig: LaunchConfig.from_environment({})}
    readers = {fact for _, fact in facts._facts}
    return {check.name: evaluate_check(check, HOSTS, facts, intent) for check in CHECKS if check.facts & readers}


@pytest.mark.parametrize("report", SICK, ids=lambda report: report.source[-40:])
def test_an_ill_device_is_found(report: Report) -> None:
    results = outcomes(report)
    for check, words in report.findings:
        assert any(words in f"{finding} {dict(finding.values)}" for finding in results[check].findings), (
            check,
            words,
            results[check],
        )
    assert {check for check in report.unknown if not results[check].unknown} == set()


@pytest.mark.parametrize("report", HEALTHY, ids=lambda report: report.source[-40:])
def test_a_sound_device_is_green(report: Report) -> None:
    results = outcomes(report)
    assert results
    for outcome in results.values():
        assert not outcome.findings and not outcome.crashed, outcome
        assert not outcome.unknown or outcome.check in report.unknown, outcome


def test_there_are_many() -> None:
    assert (len(SICK), len(HEALTHY)) >= (32, 26)
