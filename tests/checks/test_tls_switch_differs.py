from doctor import PerHost
from doctor.facts.hccn.traffic import TlsSwitches
from tests.checks.device_network import HOSTS, per, run_check


def switches(*on: bool) -> TlsSwitches:
    return TlsSwitches(by_npu=dict(enumerate(on)))


def test_the_minority_is_named() -> None:
    facts = PerHost({**per(HOSTS, switches(*[False] * 8)), "h2": switches(*[False] * 6, True, True)})
    [finding] = run_check("tls_switch_differs", switches=facts)
    assert finding.hosts == ("h2",)
    assert str(finding) == "TLS is on for NPU 6 and 7; it is off for 30 of 32 NPUs"


def test_within_one_host() -> None:
    [finding] = run_check("tls_switch_differs", switches=PerHost({"h1": switches(True, True, False)}))
    assert finding.values["npus"] == [2]
