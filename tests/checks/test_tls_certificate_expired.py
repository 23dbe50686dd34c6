import msgspec

from doctor.analysis.causes import resolve_causes
from doctor.engine.catalog import load_checks
from doctor.engine.result import Finding, Outcome, Severity
from doctor.facts.hccn.traffic import TlsSwitches
from tests.checks.device_network import run_check
from tests.report import reports as example_reports


def test_valid() -> None:
    assert run_check("tls_certificate_expired", switches=TlsSwitches(by_npu={0: True, 1: True})) == []


def test_expired_and_in_use() -> None:
    [finding] = run_check("tls_certificate_expired", switches=TlsSwitches(by_npu={0: True, 1: True}, expired=(1,)))
    assert finding.values["npu"] == 1


def test_expired_and_not_in_use() -> None:
    assert run_check("tls_certificate_expired", switches=TlsSwitches(by_npu={0: False}, expired=(0,))) == []


def test_it_follows_from_the_switch_of_the_same_npu_alone() -> None:
    expired = Finding("expired", hosts="b", npu=6)
    for npus, follows in (([6], "tls-switch-differs"), ([5], "")):
        outcomes = tuple(
            Outcome(name, Severity.ERROR, "links", "", (finding,), complete=True)
            for name, finding in (
                ("tls-switch-differs", Finding("differs", hosts="b", npus=npus)),
                ("tls-certificate-expired", expired),
            )
        )
        checks = [check for check in load_checks() if check.name in ("tls-switch-differs", "tls-certificate-expired")]
        report = resolve_causes(msgspec.structs.replace(example_reports.folded(), outcomes=outcomes), checks)
        assert report.outcomes[1].findings[0].follows_from == follows
