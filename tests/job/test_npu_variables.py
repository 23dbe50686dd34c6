"""The variables of HCCL and torch_npu: legal values, and the releases that read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from doctor.engine.toml_compat import read_table
from doctor.job import variable_values
from doctor.job.variable_names import documented_variables, misspelt
from doctor.job.variable_values import invalid_settings, value_rows
from doctor.job.variable_versions import _table, first_releases, not_read, release_of
from doctor.job.variables import relevant

LEGAL = [
    ("HCCL_ALGO", "level0:NA;level1:H-D_R"),
    ("HCCL_ALGO", "level0:NA;level1:AHC;level2:ring"),
    ("HCCL_ALGO", "allreduce=level0:NA;level1:ring/allgather=level0:NA;level1:H-D_R"),
    ("HCCL_OP_RETRY_PARAMS", "MaxCnt:3,HoldTime:5000,IntervalTime:1000"),
    ("HCCL_OP_RETRY_PARAMS", "MaxCnt:10, HoldTime:60000, IntervalTime:0"),
    ("HCCL_DEBUG_CONFIG", "alg,task,resource"),
    ("HCCL_DEBUG_CONFIG", "^TASK"),
    ("HCCL_RDMA_QPS_PER_CONNECTION", "32"),
    ("HCCL_MULTI_QP_THRESHOLD", "8192"),
    ("HCCL_RDMA_PCIE_DIRECT_POST_NOSTRICT", "true"),
    ("HCCL_LOGIC_SUPERPOD_ID", "super_pod_id_1"),
    ("HCCL_ALG_MULTIPLE_DIMENSION_SPLIT_RATIO", "0.5"),
    ("HCCL_ALG_MULTIPLE_DIMENSION_SPLIT_RATIO", "7"),  # out of range: HCCL keeps its default
    ("PYTORCH_NPU_ALLOC_CONF", "expandable_segments:True"),
    ("PYTORCH_NPU_ALLOC_CONF", "max_split_size_mb:512, garbage_collection_threshold:0.8"),
    ("PYTORCH_NPU_ALLOC_CONF", "expandable_segments:False,max_split_size_mb:128"),
    ("PYTORCH_NPU_ALLOC_CONF", "roundup_power2_divisions:[64:8,128:4],page_size:1g"),
    ("TASK_QUEUE_ENABLE", "2"),
    ("MULTI_STREAM_MEMORY_REUSE", "3"),
    ("P2P_HCCL_BUFFSIZE", "0"),
    ("ACL_DEVICE_SYNC_TIMEOUT", "2147483"),
]
REFUSED = [
    ("HCCL_ALGO", "ring"),
    ("HCCL_ALGO", "level0:NA,level1:ring"),
    ("HCCL_ALGO", "level0:NA;level1:Ring"),
    ("HCCL_ALGO", "level1:ring;level1:NHR"),
    ("HCCL_ALGO", "allreduce=level0:NA/level0:NA;level1:ring"),
    ("HCCL_OP_RETRY_PARAMS", "MaxCnt:11,HoldTime:5000,IntervalTime:1000"),
    ("HCCL_OP_RETRY_PARAMS", "HoldTime:5000,MaxCnt:1,IntervalTime:1000"),
    ("HCCL_DEBUG_CONFIG", "alg, task "),
    ("HCCL_RDMA_QPS_PER_CONNECTION", "33"),
    ("HCCL_MULTI_QP_THRESHOLD", "0"),
    ("HCCL_RDMA_PCIE_DIRECT_POST_NOSTRICT", "1"),
    ("HCCL_LOGIC_SUPERPOD_ID", "x" * 128),
    ("HCCL_ALG_MULTIPLE_DIMENSION_SPLIT_RATIO", "half"),
    ("PYTORCH_NPU_ALLOC_CONF", "expandable_segments:true"),
    ("PYTORCH_NPU_ALLOC_CONF", "expandable_segments:True,max_split_size_mb:128"),
    ("PYTORCH_NPU_ALLOC_CONF", "max_split_size_mb:20"),
    ("PYTORCH_NPU_ALLOC_CONF", "max_split_size:512"),
    ("PYTORCH_NPU_ALLOC_CONF", "garbage_collection_threshold:1"),
    ("TASK_QUEUE_ENABLE", "3"),
    ("MULTI_STREAM_MEMORY_REUSE", "4"),
    ("TORCH_TRANSFER_TO_NPU", "yes"),
    ("ACL_DEVICE_SYNC_TIMEOUT", "0"),
]


@pytest.mark.parametrize(("name", "value"), LEGAL)
def test_a_legal_value(name: str, value: str) -> None:
    assert invalid_settings(relevant({name: value})) == ()


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_a_value_that_its_reader_refuses(name: str, value: str) -> None:
    (setting,) = invalid_settings(relevant({name: value}))
    assert setting.variable == name
    assert setting.expected


def test_values_of_any_length_take_no_time() -> None:
    for name in {name for name, _ in LEGAL}:
        for text in ("level0:NA;" * 50_000, "[" * 100_000, "a:b," * 50_000, "0" * 100_000, "MaxCnt:" * 20_000):
            value_rows()[name].refuse(text, "")


@pytest.mark.parametrize(
    ("package", "variable", "since", "old"),
    [
        ("2.1.0.post8", "TORCH_HCCL_TRACE_BUFFER_SIZE", "7.0.0", ""),
        ("2.7.1.post4", "TORCH_HCCL_BLOCKING_WAIT", "26.1.0", "HCCL_BLOCKING_WAIT"),
        ("2.12.0", "TORCH_HCCL_ASYNC_ERROR_HANDLING", "26.2.0", "HCCL_ASYNC_ERROR_HANDLING"),
        ("2.1.0", "P2P_HCCL_BUFFSIZE", "6.0.rc2", ""),
        ("2.6.0.post3", "PER_STREAM_QUEUE", "7.3.0", ""),
        ("2.0.1rc1", "MULTI_STREAM_MEMORY_REUSE", "5.0.rc3", ""),
    ],
)
def test_a_release_that_does_not_read_a_variable_yet(package: str, variable: str, since: str, old: str) -> None:
    [row] = not_read({variable: "1"}, "", "", package)
    assert (row.variable, row.library, row.since, row.replacement) == (variable, "torch_npu", since, old)


@pytest.mark.parametrize(
    ("package", "environ"),
    [
        ("2.1.0.post12", {"TORCH_HCCL_TRACE_BUFFER_SIZE": "2000"}),
        ("2.13.0", {"TORCH_HCCL_ASYNC_ERROR_HANDLING": "1"}),
        ("2.7.1.post4", {"TORCH_HCCL_BLOCKING_WAIT": "1", "HCCL_BLOCKING_WAIT": "1"}),  # for old and new
        ("2.1.0.post8", {"TASK_QUEUE_ENABLE": "1", "HCCL_CONNECT_TIMEOUT": "300"}),
        ("2.1.0.post99", {"TORCH_HCCL_BLOCKING_WAIT": "1"}),  # of no known release
        ("2.7.1.dev20250101", {"TORCH_HCCL_BLOCKING_WAIT": "1"}),
        ("", {"TORCH_HCCL_BLOCKING_WAIT": "1"}),
    ],
)
def test_what_is_read_or_not_known(package: str, environ: dict[str, str]) -> None:
    assert list(not_read(environ, "", "", package)) == []


def test_the_tables_fit_each_other() -> None:
    packages = [package for row in _table().packages.values() for package in row.split()]
    assert len(packages) == len(set(packages)) == 73
    names = documented_variables()
    for library in ("NCCL", "PyTorch", "torch_npu", "HCCL"):
        assert first_releases(library).keys() <= names | {"NCCL_THREAD_THRESHOLD"}
    assert set(first_releases("torch_npu").values()) <= _table().packages.keys()
    assert value_rows().keys() <= names
    rows = read_table(Path(variable_values.__file__).with_suffix(".toml"), variable_values._Table).rows()
    assert sum(len(row.names.split()) for row in rows) == len(value_rows())  # each variable in one row
    assert release_of("2.1.0.post12+cxx11") == "7.0.0"


@pytest.mark.parametrize("name", sorted(value_rows()))
def test_each_rule_has_one_kind_and_refuses_something(name: str) -> None:
    row = value_rows()[name]
    assert sum(map(bool, (row.digits, row.number, row.choices, row.pattern, row.rule))) == 1
    assert bool(row.pattern) == bool(row.expected)
    refusals = [row.refuse(text, family) for text in ("\n", "true", "0" * 200, ",") for family in ("", "A1")]
    assert any(refusals)


def test_misspelt_names_of_real_scripts() -> None:
    slips = {
        "HCCL_INTRA_PCIE_EHABLE": "HCCL_INTRA_PCIE_ENABLE",  # of a public training script of PaddleNLP
        "TASK_QUEUE_ENABEL": "TASK_QUEUE_ENABLE",
        "PYTORCH_NPU_ALOC_CONF": "PYTORCH_NPU_ALLOC_CONF",
        "HCCL_OP_EXPANSION_MODEL": "HCCL_OP_EXPANSION_MODE",
    }
    assert misspelt(slips) == slips
