"""Remedies carry the values that doctor knows, and mark those that it does not know."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Interface

from doctor.engine.evaluate import evaluate_check
from doctor.engine.fact import Absent, Fact, Unreadable
from doctor.engine.result import Outcome
from doctor.facts.hccn.device_addresses import (
    DetectAddresses,
    DeviceAddresses,
    DeviceGateways,
    HccnConf,
    configured_address,
)
from doctor.job import LaunchConfig
from doctor.report.layout.failures import failure_entry
from doctor.report.layout.fold import fold
from doctor.report.layout.page_model import DetailLevel
from tests.checks.run_check import Facts, check
from tests.hosts.npu import HCCN_TOOL
from tests.report.reports import report

LEVEL = DetailLevel(3, 3, lists_every_check=False, names_checks=False, shortens=True)
TWICE = DeviceAddresses(by_npu={npu: IPv4Interface("29.1.0.9/16") for npu in (0,)}, unset=())


class FactsWithout(Facts):
    """One kind of fact cannot be read anywhere."""

    unreadable: type[Fact] = HccnConf

    def get(self, host: str, fact: type[Fact]) -> Fact | Absent:
        return Unreadable("sudo -n: a password is required") if fact is self.unreadable else super().get(host, fact)


def conflict(facts: type[Facts], *files: HccnConf) -> Outcome:
    hosts = {f"w{number}": [TWICE, *files[number - 1 : number]] for number in (1, 2)}
    sample_check = check("device-ip-conflict")
    return evaluate_check(sample_check, tuple(hosts), facts(hosts), {LaunchConfig: LaunchConfig.from_environment({})})


def fix(outcome: Outcome) -> tuple[str, tuple[str, ...]]:
    """The first fix as a report shows it, and what the reader has to fill in."""
    folded = fold(report(outcome, hosts=("w1", "w2")))
    entry = failure_entry(folded.failures[0], check(outcome.check), LEVEL, folded.fleet)
    return " ".join(text for label, text in entry.details if label == "fix"), entry.unfilled


def test_the_address_of_the_file_is_in_the_command_for_the_npu_that_lost_it() -> None:
    files = [HccnConf(by_npu={0: {"address": "29.1.0.7", "netmask": "255.255.0.0"}}), HccnConf(by_npu={})]
    text, unfilled = fix(conflict(Facts, *files))
    assert f"On w1, while no job runs: `{HCCN_TOOL} -i 0 -ip -s address 29.1.0.7 netmask 255.255.0.0`" in text
    assert unfilled == ()


def test_what_nobody_knows_is_marked_and_listed() -> None:
    text, unfilled = fix(conflict(Facts))
    assert f"On w2, while no job runs: `{HCCN_TOOL} -i 0 -ip -s address <address> netmask 255.255.0.0`" in text
    assert unfilled == ("<address>",)


def test_a_file_that_cannot_be_read_leaves_nothing_unknown() -> None:
    outcome = conflict(FactsWithout)
    assert outcome.findings
    assert outcome.unknown == {}
    assert "<address>" in fix(outcome)[0]


def test_a_file_that_another_npu_contradicts_gives_no_address() -> None:
    live = DeviceAddresses(by_npu={1: IPv4Interface("29.1.0.7/16")}, unset=(0,))
    conf = HccnConf(by_npu={0: {"address": "29.1.0.7"}})
    assert configured_address(conf, 0, live) == (None, IPv4Address("255.255.0.0"))
    assert configured_address(HccnConf(by_npu={0: {"address": "$(reboot)"}}), 0, live)[0] is None
    assert configured_address(None, 0, live)[0] is None


def test_gateways_that_cannot_be_read_do_not_hide_an_npu_that_watches_itself() -> None:
    class NoGateways(FactsWithout):
        unreadable = DeviceGateways

    detect = DetectAddresses(by_npu={0: IPv4Address("29.1.0.9")}, unset=())
    outcome = evaluate_check(check("detect-address-is-self"), ("w1",), NoGateways({"w1": [TWICE, detect]}), {})
    assert [finding.values["gateway"] for finding in outcome.findings] == [None]
    assert outcome.unknown == {}
