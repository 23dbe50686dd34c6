"""launch-settings-invalid."""

from __future__ import annotations

import json

import msgspec
import pytest

from doctor.engine.evaluate import FactCache, evaluate_check
from doctor.engine.fact import Fact, Output, Visit
from doctor.engine.record import HostRecord, LaunchOptions
from doctor.engine.result import Outcome, Severity, Status
from doctor.facts.accelerators import Accelerator, OtherAccelerators
from doctor.facts.gpu import GpuCards
from doctor.facts.host_variables import NcclFiles
from doctor.facts.limits import RdmaAdapters
from doctor.facts.npu import NpuProduct
from doctor.facts.python_env import PythonEnv
from doctor.facts.versions import CannVersion
from doctor.job import EnvSetting, LaunchConfig
from doctor.session.replay import launch_on_hosts
from tests.checks import run_check
from tests.checks.launch_lines import config
from tests.checks.tables import check, list_messages

NAME = "launch-settings-invalid"


def check_findings(product: str = "", **environ: str) -> Outcome:
    return evaluate_check(
        check(NAME), (), FactCache({}), {LaunchConfig: LaunchConfig.from_environment(environ, product=product)}
    )


def test_each_value_is_named_with_what_was_expected() -> None:
    outcome = check_findings(HCCL_CONNECT_TIMEOUT="60", HCCL_RDMA_TC="133")
    assert list(map(str, outcome.findings)) == [
        "HCCL_CONNECT_TIMEOUT is 60; expected a whole number from 120 to 7200",
        "HCCL_RDMA_TC is 133; expected a multiple of 4 from 0 to 252",
    ]


@pytest.mark.parametrize(
    "setting",
    ["NCCL_ALGO=Trees", "NCCL_IB_GID_INDEX=three", "OMP_NUM_THREADS=all", "OMP_PROC_BIND=tight",
     "TORCH_NCCL_BLOCKING_WAIT=on", "TORCH_DISTRIBUTED_DEBUG=VERBOSE", "MS_ROLE=MS_WORKERS", "MS_WORKER_NUM=two",
     "GLOO_DEVICE_TRANSPORT=tcp", "GLOO_DEVICE_TRANSPORT=", "TORCH_DISTRIBUTED_DEBUG=", "TORCH_DIST_INIT_BARRIER=",
     "TORCH_GLOO_LAZY_INIT=", "PYTHONINSPECT=1", "CUDA_VISIBLE_DEVICES=gpu0", "CUDA_VISIBLE_DEVICES=0,x"],
)  # fmt: skip
def test_values_of_each_library(setting: str) -> None:
    name, _, value = setting.partition("=")
    assert [finding.values["variable"] for finding in check_findings(**{name: value}).findings] == [name]


@pytest.mark.parametrize(
    "setting",
    ["GLOO_DEVICE_TRANSPORT=TCP", "GLOO_SOCKET_IFNAME=", "CUDA_VISIBLE_DEVICES=", "CUDA_VISIBLE_DEVICES=GPU-1,2"],
)
def test_values_that_look_odd_and_are_read(setting: str) -> None:
    assert check_findings(**dict([setting.split("=")])).status is Status.PASSED


def test_what_depends_on_the_product() -> None:
    assert check_findings("A1", HCCL_EXEC_TIMEOUT="20000").status is Status.FAILED
    assert check_findings("A2", HCCL_EXEC_TIMEOUT="20000").status is Status.PASSED
    outcome = check_findings(HCCL_EXEC_TIMEOUT="20000")
    assert outcome.status is Status.UNKNOWN and "HCCL_EXEC_TIMEOUT" in outcome.unknown[""].text
    assert check_findings(HCCL_EXEC_TIMEOUT="20000", HCCL_RDMA_SL="9").status is Status.FAILED


def test_the_hosts_say_which_product() -> None:
    launch = LaunchConfig.from_environment({"HCCL_EXEC_TIMEOUT": "20000"})
    facts = [NpuProduct(family="A1", evidence="")]
    assert len(run_check.run_check(NAME, {"n1": facts}, launch).findings) == 1


def test_a_product_that_is_none() -> None:
    assert list_messages(check_findings("B1")) == [
        "--product is B1; expected one of A1, A2, A3 | observed B1 | expected one of A1, A2, A3"
    ]


INVALID_SETTINGS = {
    "HCCL_ALGO": "level0:tree",
    "HCCL_DEBUG_CONFIG": "everything",
    "HCCL_OP_RETRY_PARAMS": "MaxCnt:1",
    "HCCL_OP_EXPANSION_MODE": "AICPU_NEW",
    "HCCL_ALG_MULTIPLE_DIMENSION_SPLIT_RATIO": "half",
    "PYTORCH_NPU_ALLOC_CONF": "new_option:True",
}
OF_CANN_8_5 = {"HCCL_ALGO", "HCCL_DEBUG_CONFIG", "HCCL_OP_RETRY_PARAMS", "HCCL_OP_EXPANSION_MODE"}
OF_CANN_9_1 = {"HCCL_OP_EXPANSION_MODE", "HCCL_ALG_MULTIPLE_DIMENSION_SPLIT_RATIO"}


@pytest.mark.parametrize(
    ("cann", "torch_npu", "names"),
    [
        ("", "", set()),
        ("8.0.RC3", "2.1.0.post8", set()),
        ("8.5.0", "", OF_CANN_8_5),
        ("9.0.0", "", set()),
        ("9.1.0", "", OF_CANN_9_1),
        ("10.0.0", "99.0", set()),
        ("", "2.6.0.post3", {"PYTORCH_NPU_ALLOC_CONF"}),
        ("8.5.0", "2.6.0.post3", {*OF_CANN_8_5, "PYTORCH_NPU_ALLOC_CONF"}),
    ],
)
def test_words_that_another_release_may_accept(cann: str, torch_npu: str, names: set[str]) -> None:
    python = PythonEnv("/p", "3.11.7", {"torch_npu": torch_npu} if torch_npu else {}, finds_torch=True)
    toolkit = [CannVersion(cann, "/usr/local/Ascend", {})] if cann else []
    launch = LaunchConfig.from_environment(INVALID_SETTINGS, product="A2")
    outcome = run_check.run_check(NAME, {"n1": [python, *toolkit]}, launch)
    assert {str(finding.values["variable"]) for finding in outcome.findings} == names


def test_versions_that_cannot_be_read_make_nothing_unknown() -> None:
    cache = FactCache({"n1": HostRecord(Visit(), {})})
    launch = LaunchConfig.from_environment({"HCCL_RDMA_TC": "133", **INVALID_SETTINGS}, product="A2")
    outcome = evaluate_check(check(NAME), ("n1",), cache, {LaunchConfig: launch})
    assert {finding.values["variable"] for finding in outcome.findings} == {"HCCL_RDMA_TC"}
    assert "CannVersion" not in str(outcome.unknown) and "PythonEnv" not in str(outcome.unknown)


def test_healthy() -> None:
    assert check_findings(HCCL_CONNECT_TIMEOUT="600").status is Status.PASSED


def test_what_only_npus_read_ends_no_job_without_one() -> None:
    launch = LaunchConfig.from_environment({"HCCL_RDMA_TC": "133", "WORLD_SIZE": "2.0"})
    found = {
        str(finding.values["variable"]): finding for finding in run_check.run_check(NAME, {"a": []}, launch).findings
    }
    assert {name: finding.is_warning for name, finding in found.items()} == {
        "HCCL_RDMA_TC": True,
        "WORLD_SIZE": False,
    }
    launch = LaunchConfig.from_environment({"HCCL_RDMA_TC": "133", "MS_ROLE": "MS_WORKER"})
    assert run_check.run_check(NAME, {"a": []}, launch).found_severity is Severity.ERROR


NVIDIA = GpuCards(pci=8, driver="", tool=False)
MI300 = OtherAccelerators(devices=(Accelerator("0000:05:00.0", "AMD", "1002:74a1", "amdgpu"),))


@pytest.mark.parametrize("facts", [[], [NVIDIA], [MI300]], ids=["none", "NVIDIA", "AMD"])
def test_gloo_alone_reads_no_variable_of_nccl(facts: list[Fact]) -> None:
    """Tried beside a job of torchrun: with NCCL_SOCKET_IFNAME=lo Gloo's ranks meet; with GLOO_SOCKET_IFNAME=lo none."""
    launch = config("torchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint n1:29500 t.py")
    wrong = [EnvSetting(f"{name}_SOCKET_IFNAME", "lo", "another") for name in ("GLOO", "NCCL")]
    launch = msgspec.structs.replace(launch, problems=tuple(wrong))
    findings = run_check.run_check(NAME, {"w1": facts}, launch).findings
    is_warning = {str(finding.values["variable"]): finding.is_warning for finding in findings}
    assert is_warning == {"GLOO_SOCKET_IFNAME": False, "NCCL_SOCKET_IFNAME": not facts}


@pytest.mark.parametrize(
    ("variable", "value", "right"),
    [
        ("MASTER_PORT", " 29500", True),
        ("MASTER_PORT", "29_500", True),
        ("MASTER_PORT", "29500.0", False),
        ("WORLD_SIZE", "+8 ", True),
        ("WORLD_SIZE", "0x8", False),
        ("RANK_SIZE", " 8", False),
        ("MASTER_ADDR", "10.91.257", True),
        ("MASTER_ADDR", "0x0a5b0101", True),
        ("MASTER_ADDR", "10.91.300.1", False),
        ("MASTER_ADDR", "tcp://n1", False),
    ],
)
def test_numbers_are_read_as_the_job_reads_them(variable: str, value: str, right: bool) -> None:
    assert (check_findings(**{variable: value}).status is Status.PASSED) is right


@pytest.mark.parametrize(
    ("net", "adapters", "found"),
    [("IB", (), True), ("ib", (), True), ("IB", ("mlx5_0",), False), ("Socket", (), False), ("IB", None, False)],
)
def test_a_network_of_nccl_that_a_host_has_not(net: str, adapters: tuple[str, ...] | None, found: bool) -> None:
    """Adapters that nobody has looked for accuse nothing."""
    facts: list[Fact] = [GpuCards(pci=8, driver="", tool=False)]
    facts += [] if adapters is None else [RdmaAdapters(names=adapters)]
    launch = LaunchConfig.from_environment({"NCCL_NET": net})
    findings = [str(each) for each in run_check.run_check(NAME, {"w1": facts}, launch).findings]
    assert findings == ([f"NCCL_NET is {net}; expected Socket: w1 has no RDMA adapter"] if found else [])


@pytest.mark.parametrize(
    ("setting", "ranks", "is_warning"),
    [
        ("NCCL_ALGO=bogus", 1, True),
        ("NCCL_ALGO=bogus", 2, False),
        ("NCCL_ALGO=^Ring", 2, False),
        ("NCCL_PROTO=LL256", 1, True),
        ("NCCL_BUFFSIZE=-1", 1, True),
        ("NCCL_BUFFSIZE=8", 2, False),
    ],
)
def test_a_rank_alone_ends_only_at_what_nccl_reads_for_it(setting: str, ranks: int, is_warning: bool) -> None:
    """Each beside a real job on an H200 with torch 2.11 and NCCL 2.28; the ranks of two on one GPU by NCCL_HOSTID."""
    line = f"torchrun --standalone --nproc-per-node {ranks} t.py"
    python = PythonEnv(path="/usr/bin/python3", version="3.12.3", packages={"torch": "2.11.0"}, finds_torch=True)
    host = [GpuCards(pci=2, driver="580.159.03", tool=True), python]
    launch = config(line, dict([setting.split("=")]))
    [finding] = run_check.run_check(NAME, {"w1": host}, launch).findings
    assert finding.is_warning is is_warning


NCCL_FILES = {
    "ends": ({"NCCL_ALGO": "bogus"}, {}, ["NCCL_ALGO is bogus in /etc/nccl.conf"]),
    "the environment wins": ({"NCCL_ALGO": "bogus"}, {"NCCL_ALGO": "Ring"}, []),
    "right": ({"NCCL_ALGO": "Ring"}, {}, []),
}


@pytest.mark.parametrize(("variables", "environ", "messages"), NCCL_FILES.values(), ids=NCCL_FILES)
def test_a_file_of_nccl_on_one_host(variables: dict[str, str], environ: dict[str, str], messages: list[str]) -> None:
    files = NcclFiles(variables=variables, paths=dict.fromkeys(variables, "/etc/nccl.conf"))
    gpu = GpuCards(pci=8, driver="550.54.15", tool=True)
    python = PythonEnv(path="/p", version="3.11.1", packages={"torch": "2.7.1+cu126"}, finds_torch=True)
    none = NcclFiles(variables={}, paths={})
    hosts: run_check.FactsByHost = {"w1": [none, gpu, python], "w2": [files, gpu, python]}
    launch = msgspec.structs.replace(run_check.job(**environ), files={"w1": {}, "w2": variables})
    outcome = run_check.run_check("launch-settings-invalid", hosts, launch)
    found = [(host, text.partition(";")[0]) for host, text in run_check.messages(outcome)]
    assert found == [("w2", text) for text in messages]
    assert not found or "`sed -i '/^NCCL_ALGO=/d' /etc/nccl.conf`" in run_check.advice(
        "launch-settings-invalid", outcome
    )

    merged = msgspec.structs.replace(launch, env_by_host={"w2": {"NCCL_ALGO": "Ring"}})
    assert run_check.messages(run_check.run_check("launch-settings-invalid", hosts, merged)) == []


def test_what_a_file_sets_is_the_environment_of_its_host() -> None:
    record = HostRecord(Visit(), {"NcclFiles": {"": Output(out='{"/etc/nccl.conf": "NCCL_ALGO=Ring\\nNCCL_NET=IB"}')}})
    options = LaunchOptions(environ={"NCCL_NET": "Socket"})
    launch = launch_on_hosts(options, {"w1": record, "w2": HostRecord(Visit(), {})})
    assert launch.environ_of("w1") == {"NCCL_ALGO": "Ring", "NCCL_NET": "Socket"}
    assert launch.environ_of("w2") == launch.env == {"NCCL_NET": "Socket"}


def test_files_that_differ_hang_the_ranks() -> None:
    files = {"w1": {"NCCL_PROTO": "LL"}, "w2": {}, "w3": {}}
    differs = run_check.run_check("launch-differs", run_check.fleet(3), LaunchConfig(files=files))
    assert run_check.messages(differs) == [("w1", "NCCL_PROTO is ll; expected not set")]
    alike = run_check.run_check("launch-differs", run_check.fleet(3), LaunchConfig(files={host: {} for host in files}))
    assert alike.status is Status.SKIPPED
    named = run_check.run_check(
        "launch-variable-misspelt", run_check.fleet(1), LaunchConfig(files={"w1": {"NCCL_AGLO": "x"}})
    )
    assert run_check.messages(named) == [("w1", "no library reads NCCL_AGLO; the name is NCCL_ALGO")]


def test_what_one_hosts_shell_sets_is_its_environment() -> None:
    """Of communication alone: torchrun gives its ranks MASTER_ADDR, whatever the shell has."""
    outputs = [json.dumps({"NCCL_ALGO": value, "MASTER_ADDR": "old"} if value else {}) for value in ("", "", "Ring")]
    records = {
        f"w{number}": HostRecord(Visit(), {"StartupVariables": {"": Output(out=text)}})
        for number, text in enumerate(outputs, 1)
    }
    launch = launch_on_hosts(LaunchOptions(launchers=("torchrun",)), records)
    outcome = run_check.run_check("launch-differs", run_check.fleet(3), launch)
    assert run_check.messages(outcome) == [("w3", "NCCL_ALGO is ring; expected not set")]
    launch = launch_on_hosts(LaunchOptions(environ={"NCCL_ALGO": "Tree"}), records)
    assert run_check.run_check("launch-differs", run_check.fleet(3), launch).findings == ()
