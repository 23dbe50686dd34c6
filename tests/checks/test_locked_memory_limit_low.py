import pytest

from doctor.engine.fact import Fact
from doctor.engine.quantities import GIB, MIB
from doctor.facts.gpu import GpuCards
from doctor.facts.limits import Limit, RdmaAdapters
from doctor.facts.memory import HostMemory
from doctor.facts.slurm import JobServices
from doctor.job import LaunchConfig
from tests.checks.containers import container
from tests.checks.control_groups import control_group, memory_bound
from tests.checks.limits import FREE, limits
from tests.checks.npus import npus
from tests.checks.run_check import messages, run_check, skipped

NAME = "locked-memory-limit-low"
MEMORY = HostMemory(total=512 * GIB, available=500 * GIB)
ADAPTERS = RdmaAdapters(names=("mlx5_0",))
GPUS = GpuCards(pci=8, driver="", tool=False)


@pytest.mark.parametrize("device", [npus(8), ADAPTERS, GPUS])
@pytest.mark.parametrize("limit", [FREE, Limit(512 * GIB, None)])
def test_as_much_as_the_host_has_is_well(limit: Limit, device: Fact) -> None:
    assert messages(run_check(NAME, {"a": [limits(memlock=limit), MEMORY, device]})) == []


def test_as_much_as_the_control_group_has_is_well() -> None:
    group = control_group(memory=(memory_bound(64 * GIB),))
    assert messages(run_check(NAME, {"a": [limits(memlock=Limit(64 * GIB, None)), MEMORY, GPUS, group]})) == []
    assert messages(run_check(NAME, {"a": [limits(memlock=Limit(63 * GIB, None)), MEMORY, GPUS, group]})) != []


@pytest.mark.parametrize("device", [ADAPTERS, GPUS])
def test_a_limit_where_a_device_needs_none(device: Fact) -> None:
    outcome = run_check(NAME, {"a": [limits(memlock=Limit(8 * MIB, None)), MEMORY, device]})
    assert messages(outcome) == [("a", "a process may lock 8 MiB of memory; expected no limit")]
    assert outcome.findings[0].values["hard"] == "unlimited"


def test_npus_alone_do_with_the_kernels_default() -> None:
    assert messages(run_check(NAME, {"a": [limits(memlock=Limit(8 * MIB, 8 * MIB)), MEMORY, npus(8)]})) == []
    outcome = run_check(NAME, {"a": [limits(memlock=Limit(64 << 10, 64 << 10)), MEMORY, npus(8)]})
    assert messages(outcome) == [("a", "a process may lock 64 KiB of memory; expected 8 MiB, better no limit")]


def test_npus_beside_an_adapter_want_no_limit() -> None:
    assert messages(run_check(NAME, {"a": [limits(memlock=Limit(8 * MIB, None)), MEMORY, npus(8), ADAPTERS]}))


@pytest.mark.parametrize("tool", [[], [GpuCards(pci=0, driver="", tool=True)]])
def test_a_plain_host_is_not_judged(tool: list[Fact]) -> None:
    """A tool without a card is no GPU."""
    outcome = run_check(NAME, {"a": [limits(memlock=Limit(1, 1)), MEMORY, *tool]})
    assert skipped(outcome) == {"no NPU, no NVIDIA GPU and no RDMA adapter"}


def test_the_remedy_is_of_the_service_that_sets_the_limit() -> None:
    text = "Max open files 1024 1024 files\nMax locked memory 65536 65536 bytes\n"
    daemon = JobServices({"slurmd": text, "pbs_mom": text})
    of_srun, of_pbs = LaunchConfig(launchers=("srun",), launch_line="srun t.py"), LaunchConfig(env={"PBS_JOBID": "1"})
    of_login = (LaunchConfig(), Limit(8 * MIB, None), "Login")
    for launch, own, case in ((of_srun, FREE, "Service"), (of_pbs, FREE, "Service"), of_login):
        outcome = run_check(NAME, {"a": [limits(memlock=own), MEMORY, GPUS, daemon]}, launch)
        assert [finding.values["case"] for finding in outcome.findings] == [case]
    assert not run_check(NAME, {"a": [limits(memlock=FREE), MEMORY, GPUS, daemon]}).findings


def test_an_error_where_nccl_must_fail() -> None:
    """Several hosts, GPUs and RDMA adapters, and a process that is held to the limit."""
    held, free = container(engine="", capabilities=0), container(engine="", capabilities=1 << 14)
    low, larger = limits(memlock=Limit(64 << 10, None)), limits(memlock=Limit(128 * MIB, None))
    job = [low, MEMORY, GPUS, ADAPTERS, held]

    def severity(hosts: dict[str, list[Fact]], **environ: str) -> str:
        launch = LaunchConfig.from_environment(environ)
        return run_check(NAME, hosts, launch).found_severity.value

    assert severity({"a": job, "b": job}) == "error"
    assert severity({"a": job}) == "warning"
    assert severity({"a": job, "b": job}, NCCL_IB_DISABLE="1") == "warning"
    for other in (
        [low, MEMORY, GPUS, ADAPTERS, free],
        [larger, MEMORY, GPUS, ADAPTERS, held],
        [low, MEMORY, GPUS, held],
        [low, MEMORY, ADAPTERS, held],
        [low, MEMORY, npus(8), ADAPTERS, held],
    ):
        assert severity({"a": other, "b": other}) == "warning"
