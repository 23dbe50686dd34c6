"""launch-variable-misspelt."""

from __future__ import annotations

import pytest

from doctor.job import LaunchConfig
from tests.checks.launch_lines import run_check

NAMES: list[tuple[dict[str, str], dict[str, str]]] = [
    ({"NCCL_SOCKET_IFNAM": "eth0"}, {"NCCL_SOCKET_IFNAM": "NCCL_SOCKET_IFNAME"}),
    ({"NCLL_DEBUG": "INFO"}, {"NCLL_DEBUG": "NCCL_DEBUG"}),
    ({"HCCL_CONECT_TIMEOUT": "1"}, {"HCCL_CONECT_TIMEOUT": "HCCL_CONNECT_TIMEOUT"}),
    ({"MASTER_PROT": "1"}, {"MASTER_PROT": "MASTER_PORT"}),
    ({"CUDA_VISIBLE_DEVICE": "0"}, {"CUDA_VISIBLE_DEVICE": "CUDA_VISIBLE_DEVICES"}),
    ({"NCCL_DEBUG": "INFO", "NCCL_IB_HCA": "x", "OMP_NUM_THREADS": "1", "TORCH_NCCL_DUMP_ON_TIMEOUT": "1"}, {}),
    ({"NCCL_SOCKET_IFNAMES": "x", "NCCL_SOCKET_IFNAME": "eth0"}, {}),
    ({"RANKS": "8", "MY_MASTER_ADDR": "x", "WORLD": "1", "NCCL_SITE_NAME": "x"}, {}),
]

MISSPELT = {
    "NCCL_IB_GID_IDX": "NCCL_IB_GID_INDEX",
    "NCCL_GID_INDEX": "NCCL_IB_GID_INDEX",
    "NCCL_HCA": "NCCL_IB_HCA",
    "NCCL_SOCKET_INTERFACE": "NCCL_SOCKET_IFNAME",
    "NCCL_IFNAME": "NCCL_SOCKET_IFNAME",
    "NCCL_INTERFACE": "NCCL_SOCKET_IFNAME",
    "NCCL_DISABLE_P2P": "NCCL_P2P_DISABLE",
    "NCCL_DISABLE_IB": "NCCL_IB_DISABLE",
    "NCCL_IB_DISABLED": "NCCL_IB_DISABLE",
    "NCCL_ENABLE_NVLS": "NCCL_NVLS_ENABLE",
    "NCCL_ALGORITHM": "NCCL_ALGO",
    "NCCL_PROTOCOL": "NCCL_PROTO",
    "NCCL_BUFFER_SIZE": "NCCL_BUFFSIZE",
    "NCCL_DEBUG_SUBSYSTEM": "NCCL_DEBUG_SUBSYS",
    "NCCL_TOPOLOGY_FILE": "NCCL_TOPO_FILE",
    "NCCL_IB_RETRY_COUNT": "NCCL_IB_RETRY_CNT",
    "NCCL_HEARTBEAT_TIMEOUT_SEC": "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC",
    "NCCL_NAN_CHECK": "TORCH_NCCL_NAN_CHECK",
    "TORCH_NCCL_SOCKET_IFNAME": "NCCL_SOCKET_IFNAME",
    "TORCH_NCCL_DEBUG": "NCCL_DEBUG",
    "HCCL_CONN_TIMEOUT": "HCCL_CONNECT_TIMEOUT",
    "HCCL_IFNAME": "HCCL_SOCKET_IFNAME",
    "HCCL_BUFFER_SIZE": "HCCL_BUFFSIZE",
    "HCCL_WHITELIST_DISABLED": "HCCL_WHITELIST_DISABLE",
    "GLOO_IFNAME": "GLOO_SOCKET_IFNAME",
    "GLOO_SOCKET_INTERFACE": "GLOO_SOCKET_IFNAME",
    "GLOO_SOCKET_NIC": "GLOO_SOCKET_IFNAME",
    "ASCEND_DEVICES": "ASCEND_RT_VISIBLE_DEVICES",
    "ASCEND_VISIBLE_RT_DEVICES": "ASCEND_RT_VISIBLE_DEVICES",
    "MASTER_ADDRESS": "MASTER_ADDR",
}
UNRELATED_VARIABLES = """
NCCL_TIMEOUT NCCL_HOME NCCL_ROOT_DIR NCCL_TESTS NCCL_TESTS_PATH NCCL_LIB NCCL_PORT NCCL_LOG_DIR NCCL_LOG_FILE
NCCL_CONFIG NCCL_INCLUDE NCCL_LIBRARY_PATH NCCL_ENV NCCL_BACKEND NCCL_SITE_NAME NCCL_IB NCCL_P2P NCCL_NET_NAME
NCCL_TEST_ARGS HCCL_TIMEOUT HCCL_HOME HCCL_CONFIG HCCL_LOG_DIR HCCL_PORT HCCL_RANK_TABLE HCCL_TEST_PATH HCCL_JSON
GLOO_PORT GLOO_TIMEOUT GLOO_HOME GLOO_BACKEND TORCH_TIMEOUT TORCH_VERSION TORCH_PATH TORCH_BACKEND TORCH_DEVICE
TORCH_DTYPE ASCEND_HOME ASCEND_PATH ASCEND_DRIVER_PATH ASCEND_LOG_DIR ASCEND_LOG_LEVEL ASCEND_DRIVER_HOME
ASCEND_VERSION ASCEND_NUM MASTER_HOST MASTER_IP MASTER_NODE MASTER_NAME MASTER_HOSTNAME MASTER_RANK MASTER_URL
MASTER_NODE_ADDR MS_HOME MS_PORT MS_TIMEOUT MS_LOG_DIR MS_CONFIG MS_VERSION MS_DEVICE_NUM MS_HOST MS_MODEL_PATH
OMP_HOME OMP_THREADS_PER_RANK PYTORCH_HOME PYTORCH_VERSION PYTORCH_DIR PYTORCH_CONFIG UCX_HOME UCX_PATH UCX_DIR
TP_PORT TP_SIZE TP_DEGREE TP_WORLD_SIZE TP_RANK TP_GROUP TORCH_DISTRIBUTED_PORT TORCH_DISTRIBUTED_BACKEND TORCH_RUN
TORCH_NPU_PATH
"""
"""As scripts of users call their own variables."""


def test_other_words_than_the_librarys() -> None:
    for name, intended in MISSPELT.items():
        outcome = run_check("launch-variable-misspelt", LaunchConfig.from_environment({name: "x"}))
        assert [finding.values["expected"] for finding in outcome.findings] == [intended], name


@pytest.mark.parametrize("name", UNRELATED_VARIABLES.split())
def test_a_scripts_own_name_is_no_slip(name: str) -> None:
    assert not run_check("launch-variable-misspelt", LaunchConfig.from_environment({name: "x"})).findings


@pytest.mark.parametrize(("environ", "slips"), NAMES)
def test_misspelt_variables(environ: dict[str, str], slips: dict[str, str]) -> None:
    outcome = run_check("launch-variable-misspelt", LaunchConfig.from_environment(environ))
    assert {finding.values["variable"]: finding.values["expected"] for finding in outcome.findings} == slips


def test_the_right_name_may_be_in_a_file_of_nccl_or_in_the_hosts_environment() -> None:
    """Each host by what it has: its file, and its environment."""
    files = {"w1": {"NCCL_AGLO": "Ring"}, "w2": {"NCCL_AGLO": "Ring"}, "w3": {"NCCL_ALGO": "Ring"}}
    environs = {"w1": {"NCCL_PROTO": "LL"}, "w2": {"NCCL_ALGO": "Ring"}, "w3": {"NCCL_AGLO": "Ring"}}
    outcome = run_check("launch-variable-misspelt", LaunchConfig(files=files, env_by_host=environs))
    assert [(finding.values["variable"], finding.hosts) for finding in outcome.findings] == [("NCCL_AGLO", ("w1",))]


@pytest.mark.parametrize(
    ("value", "remedy"),
    [("300", "`export HCCL_CONNECT_TIMEOUT=300`"), ("$(reboot)", ""), ("3`00", ""), ("3 0", "")],
)
def test_the_remedy_is_the_line_with_the_right_name(value: str, remedy: str) -> None:
    """A value that is no plain word is left to the page, which prints no value."""
    launch = LaunchConfig(env={"HCCL_CONECT_TIMEOUT": value})
    (finding,) = run_check("launch-variable-misspelt", launch).findings
    assert remedy in finding.values["remedy"]
    assert bool(finding.values["remedy"]) == bool(remedy)


def test_a_file_of_nccl_is_mended_where_it_is() -> None:
    launch = LaunchConfig(files={"w1": {"NCCL_AGLO": "Ring"}, "w2": {"NCCL_ALGO": "Ring"}})
    (finding,) = run_check("launch-variable-misspelt", launch).findings
    assert finding.values["remedy"].startswith("On w1: `sed -i.bak 's/NCCL_AGLO/NCCL_ALGO/' $(grep -ls NCCL_AGLO ")
