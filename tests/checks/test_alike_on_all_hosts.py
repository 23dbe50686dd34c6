"""Checks of a value that all hosts must have alike: the same five properties of each, from two values.

What a check compares, leaves out and advises is tested in a file of its own.
"""

from __future__ import annotations

import ast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.engine.catalog import bundled_folder
from doctor.engine.evaluate import evaluate_check
from doctor.engine.fact import Absent, Fact, Unreadable
from doctor.engine.result import Outcome
from doctor.facts.amd_smi import AmdGpu, AmdGpus
from doctor.facts.hccn.link_state import DeviceMtu
from doctor.facts.hccn.traffic import DevicePfc, DeviceTrafficClasses, TlsSwitches
from doctor.facts.npu import NpuProduct
from doctor.facts.npu_counters import NpuFrequencies
from doctor.facts.npu_fabric import NpuTopology
from tests.checks import devices, gpu_hosts
from tests.checks.run_check import Facts, check

NCCL = "nvidia_nccl_cu12"
AMD = AmdGpu(0, "0000:05:00.0", "AMD Instinct MI300X", compute_partition="SPX")
AMD_PARTED = msgspec.structs.replace(AMD, compute_partition="CPX")
HOSTS: dict[str, tuple[Fact, Fact]] = {
    "amd-gpu-settings-differ": (AmdGpus(gpus=(AMD,)), AmdGpus(gpus=(AMD_PARTED,))),
    "cann-version-differs": (devices.cann(), devices.cann("8.0.0")),
    "device-mtu-differs": (DeviceMtu(by_npu={0: 4200}), DeviceMtu(by_npu={0: 1500})),
    "device-pfc-differs": (DevicePfc(by_npu={0: "00001000"}), DevicePfc(by_npu={0: "00000000"})),
    "device-traffic-class-differs": (
        DeviceTrafficClasses(by_npu={0: "0-31:0 32-39:4 40-63:0"}),
        DeviceTrafficClasses(by_npu={0: "0-63:0"}),
    ),
    "driver-version-differs": (devices.versions(), devices.versions(driver="24.1.0")),
    "firmware-version-differs": (devices.versions(), devices.versions(firmware="7.1.0.11.220")),
    "gpu-count-differs": (devices.gpus(), devices.gpus(7)),
    "gpu-driver-differs": (devices.gpus(), devices.gpus(driver="535.129.03")),
    "gpu-mig-differs": (gpu_hosts.gpus(), gpu_hosts.gpus(gpu_hosts.gpu(mig="Enabled", mig_pending="Enabled"))),
    "gpu-power-limit-differs": (gpu_hosts.gpus(), gpu_hosts.gpus(gpu_hosts.gpu(power_limit=500.0))),
    "gpu-product-mixed": (gpu_hosts.gpus(), gpu_hosts.gpus(gpu_hosts.gpu(name="NVIDIA A100-SXM4-80GB"))),
    "gpu-vbios-differs": (
        gpu_hosts.gpus(gpu_hosts.gpu(vbios="96.00.89.00.01")),
        gpu_hosts.gpus(gpu_hosts.gpu(vbios="96.00.74.00.01")),
    ),
    "nccl-version-differs": (devices.python(**{NCCL: "2.27.5"}), devices.python(**{NCCL: "2.21.5"})),
    "npu-count-differs": (devices.inventory(), devices.inventory(range(7))),
    "npu-frequency-differs": (NpuFrequencies(by_card={0: 1800}), NpuFrequencies(by_card={0: 1500})),
    "npu-topology-differs": (NpuTopology(relations={"0-1": "HCCS"}), NpuTopology(relations={"0-1": "SYS"})),
    "product-mixed": (NpuProduct(family="A2", evidence=""), NpuProduct(family="A1", evidence="")),
    "python-version-differs": (devices.python("3.10.12"), devices.python("3.9.1")),
    "rdma-devices-differ": (gpu_hosts.rdma(), gpu_hosts.rdma(gpu_hosts.port())),
    "rdma-firmware-differs": (gpu_hosts.rdma(), gpu_hosts.rdma(firmware="28.36.1010")),
    "rdma-settings-differ": (gpu_hosts.rdma(gpu_hosts.port()), gpu_hosts.rdma(gpu_hosts.port(mtu="1500"))),
    "tls-switch-differs": (TlsSwitches(by_npu={0: False}), TlsSwitches(by_npu={0: True})),
    "torch-version-differs": (devices.python(torch="2.7.1"), devices.python(torch="2.6.0")),
}
APART = {
    "device-ip-families-mixed": "the families of one host's NPUs are compared as well",
    "gpu-pcie-width-low": "a width below the card's own is wrong on all hosts, too",
    "host-settings-differ": "many settings, each with a row of its own",
    "interface-mtu-differs": "hosts are compared within one network",
    "mount-options-differ": "hosts are compared for one mount, by the options that matter",
    "network-card-slow": "only the slower side is wrong",
    "rdma-port-slow": "only the slower side is wrong",
    "smoke-version-differs": "ranks are compared, by the rules of the smoke run",
    "visible-devices-wrong": "how many are visible is one of several rules",
}

WITHIN_A_HOST = {
    "amd-gpu-settings-differ",
    "gpu-mig-differs",
    "gpu-power-limit-differs",
    "gpu-product-mixed",
    "gpu-vbios-differs",
    "npu-frequency-differs",
}
"""They compare the devices of one host as well."""


class _Unread(Facts):
    """Facts of which one host's answered nothing that makes sense."""

    def __init__(self, hosts: dict[str, list[Fact]], unread: str) -> None:
        super().__init__(hosts)
        self.unread = unread

    def get(self, host: str, fact: type[Fact]) -> Fact | Absent:
        value = super().get(host, fact)
        return Unreadable("no answer in 10 s") if host == self.unread and isinstance(value, Fact) else value


def evaluate(name: str, values: list[bool], unread: str = "") -> Outcome:
    """The outcome on hosts w0, w1, ...: True has the usual value."""
    usual, other = HOSTS[name]
    hosts: dict[str, list[Fact]] = {f"w{number}": [usual if value else other] for number, value in enumerate(values)}
    return evaluate_check(check(name), tuple(hosts), _Unread(hosts, unread), {})


def blamed(outcome: Outcome) -> set[str]:
    return {host for finding in outcome.findings for host in finding.hosts}


every_check = pytest.mark.parametrize("name", HOSTS)


def test_every_check_that_compares_hosts_is_among_them_or_says_why_not() -> None:
    files = sorted(bundled_folder("checks").glob("*.py"))
    imports = {path.stem.replace("_", "-") for path in files if "differing" in _imported(path.read_text())}
    assert imports == {*HOSTS, *APART} and not HOSTS.keys() & APART.keys()


def _imported(source: str) -> set[str]:
    nodes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom))
    of_devices = ("differing_npus", "differing_devices")
    return {"differing" if alias.name in of_devices else alias.name for node in nodes for alias in node.names}


@every_check
@pytest.mark.parametrize("value", [True, False])
def test_hosts_that_agree_are_sound_whatever_they_agree_on(name: str, value: bool) -> None:
    outcome = evaluate(name, [value] * 3)
    assert not outcome.findings and outcome.complete and len(outcome.evaluated_hosts) == 3


@every_check
def test_a_single_host_is_not_compared(name: str) -> None:
    outcome = evaluate(name, [True])
    assert not outcome.findings and not outcome.crashed
    assert bool(outcome.skipped) == (name not in WITHIN_A_HOST)


@every_check
@given(data=st.data())
def test_the_minority_is_blamed_and_the_value_of_most_is_expected(name: str, data: st.DataObject) -> None:
    size = data.draw(st.integers(3, 7))
    minority = data.draw(st.sets(st.integers(0, size - 1), min_size=1, max_size=(size - 1) // 2))
    value = data.draw(st.booleans())
    outcome = evaluate(name, [(number not in minority) == value for number in range(size)])
    assert blamed(outcome) == {f"w{number}" for number in minority}
    for finding in outcome.findings:
        if "observed" in finding.values:
            assert finding.values["observed"] != finding.values["expected"]


@every_check
@given(half=st.integers(1, 3), data=st.data())
def test_a_tie_blames_all(name: str, half: int, data: st.DataObject) -> None:
    """Which half is wrong cannot be decided."""
    values = data.draw(st.permutations([True] * half + [False] * half))
    outcome = evaluate(name, list(values))
    assert blamed(outcome) == {f"w{number}" for number in range(2 * half)}
    assert all(not finding.values.get("expected") for finding in outcome.findings)


@every_check
@pytest.mark.parametrize("unread", ["w0", "w3"])
def test_a_host_that_could_not_be_read_is_unknown_and_has_no_vote(name: str, unread: str) -> None:
    """w0 has the usual value, w3 the other one."""
    outcome = evaluate(name, [True, True, True, False], unread)
    assert set(outcome.unknown) == {unread}
    assert blamed(outcome) == {"w3"} - {unread}
