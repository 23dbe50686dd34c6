"""Commands of a signature's advice have the values that the logs show; a log writes nothing else into them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from doctor.diagnose.diagnosis import Culprit
from doctor.diagnose.events import Event
from doctor.diagnose.render.log_values import fill_values, program_line, requested_settings, values_in_logs
from tests.diagnose.test_command import run
from tests.diagnose.test_rules import SIGNATURES

REFUSED = (
    b"[E416 15:40:10.861069241 socket.cpp:1023] [c10d] The client socket has timed out after 300000ms while trying \
to connect to (%s, 40613).\n"
)


def event(**values: str) -> Event:
    return Event("a-signature", 0, 1, "a line", values)


def test_a_mount_that_no_longer_answers_is_looked_up_without_touching_it() -> None:
    """findmnt, df and stat ask the mount itself, and fail or wait there."""
    commands = " ".join(SIGNATURES["file-handle-stale"].fix)
    assert "/proc/self/mounts" in commands and not re.search(r"\b(?:findmnt|df|stat|ls)\b", commands)


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("ValueError: DeepSpeed Zero-3 is not compatible with passing a `device_map`.", "take one of both settings"),
        ("ValueError: Number of devices 8 must be equal to the product of mesh_shape (4, 4)", "jax.make_mesh"),
        (
            "AssertionError: num_layers value from checkpoint (32) is not equal to the input argument value (24).",
            "--use-checkpoint-args",
        ),
        ("AssertionError: only support equal chunk. Got size of DataProto 512 and chunk 6.", "set the whole batch"),
        (
            "ValueError: Total number of attention heads (40) must be divisible by tensor parallel size (5).",
            "--tensor-parallel-size 4",
        ),
        ("Failed to initialize NVML: Driver/library version mismatch", "modprobe -r nvidia_uvm"),
        ("RuntimeError: Triton Error [CUDA]: device kernel image is invalid", "rm -rf ~/.triton/cache"),
        ("ptxas fatal   : Value 'sm_120' is not defined for option 'gpu-name'", "pip install -U torch triton"),
        ("AttributeError: module 'numpy' has no attribute 'float'", "pip install -r requirements.txt"),
    ],
)
def test_the_first_remedy_fits_the_line(line: str, command: str) -> None:
    """Rows for other lines have the same class, and another remedy."""
    document = json.loads(run("-", "--json", text=line.encode() + b"\n").stdout)
    assert command in document["causes"][0]["fix"][0]


def test_a_device_of_all_culprits_a_host_and_a_port_are_known() -> None:
    assert values_in_logs([], [Culprit(1, "n1", 4), Culprit(2, "n2", 4)]) == {"N": "4", "NODES": "n1,n2"}
    assert values_in_logs([event(host_name="n7", port="29500")]) == {"HOST": "n7", "PORT": "29500"}
    assert values_in_logs([event(slurm_job="77_3", culprit_hosts="n3")]) == {"HOST": "n3", "NODE": "n3", "JOB": "77_3"}
    assert values_in_logs([event(setting="HCCL_RDMA_SL", value="1000")]) == {"VARIABLE": "HCCL_RDMA_SL"}


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("ModuleNotFoundError: No module named 'yaml'", "python3 -m pip install --upgrade 'PyYAML'"),
        ("ModuleNotFoundError: No module named 'transf0rmers'", "python3 -m pip install --upgrade '<package>'"),
        (
            "ImportError: tokenizers>=0.19,<0.20 is required for a normal functioning of this module, but found t==1",
            "pip install --upgrade 'tokenizers>=0.19,<0.20'",
        ),
        ("ImportError: evil>=1 is required for a normal functioning of this module, but found e==1", "'<package>'"),
        ("./b.sh: line 2: ./a.sh: cannot execute: required file not found", "sed -i 's/\\r$//' ./a.sh"),
        ("./b.sh: line 2: /x;reboot: Permission denied", "chmod +x <file>"),
        ("RuntimeError: Parent directory /ckpt/run7 does not exist.", "mkdir -p /ckpt/run7"),
        ("RuntimeError: Parent directory /x$(id) does not exist.", "mkdir -p <folder>"),
        ("OSError: Stale file handle: '/data/part-7.bin'", "awk -v f=/data/part-7.bin '$3"),
        ("OSError: Stale file handle: '/data/$(id)'", "awk -v f=<file> '$3"),
        ("ModuleNotFoundError: No module named 'google.cloud'", "python3 -m pip install --upgrade '<package>'"),
    ],
)
def test_a_package_of_the_table_a_file_and_a_folder_of_the_line_are_in_the_command(line: str, command: str) -> None:
    assert command in " ".join(run("-", text=line.encode() + b"\n").stdout.split())


def test_where_lines_differ_nothing_is_known() -> None:
    assert values_in_logs([event(port="1"), event(port="2")]) == {}
    assert values_in_logs([], [Culprit(1, "n1"), Culprit(2, "n2")]) == {"NODES": "n1,n2"}
    assert values_in_logs([event(culprit_hosts="n[1-4]")]) == {}


@pytest.mark.parametrize(
    "value", ["n1;reboot", "$(reboot)", "-oProxyCommand=x", "a b", "a\nb", "`x`", "n1'", "x" * 300, "n1|sh", "é"]
)
def test_what_a_shell_could_read_otherwise_is_left_out(value: str) -> None:
    assert (
        values_in_logs([event(host_name=value, port=value, slurm_job=value, dev=value, ip=value, setting=value)]) == {}
    )
    output = run("-", text=REFUSED % value.replace("\n", " ").encode()).stdout
    assert "nc -zv <host>" in " ".join(output.split())


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("nc -zv HOST PORT, and ss -ltn", "nc -zv n1 5, and ss -ltn"),
        ("执行 nc -zv HOST PORT；在 HOST上", "执行 nc -zv n1 5；在 n1上"),
        ("hccn_tool -i N -link -g; the first N batches", "hccn_tool -i 3 -link -g; the first N batches"),
        ("sacct -j JOB -o state; the JOB", "sacct -j 9 -o state; the JOB"),
        ("X=HOST MASTER_PORT HOST_IP /x/HOST", "X=HOST MASTER_PORT HOST_IP /x/HOST"),
        (r"HOST \1", r"n1 \1"),
    ],
)
def test_only_placeholders_of_commands_are_filled(text: str, filled: str) -> None:
    assert fill_values(text, {"HOST": "n1", "PORT": "5", "N": "3", "JOB": "9"}) == filled


@pytest.mark.parametrize("options", [(), ("--json",), ("-f", "md"), ("-f", "html")])
def test_every_format_has_them(options: tuple[str, ...]) -> None:
    output = run("-", *options, text=REFUSED % b"node-a.example.org").stdout
    assert "nc -zv node-a.example.org 40613" in " ".join(output.split())


def test_the_document_has_no_placeholder_that_is_known() -> None:
    document: dict[str, Any] = json.loads(run("-", "--json", text=REFUSED % b"n1").stdout)
    (reported,) = document["undecidable"]["reported"]
    assert not [text for text in reported["confirm"] if "HOST PORT" in text]


@pytest.mark.parametrize(
    ("text", "fix", "command"),
    [
        ('Please set `NCCL_P2P_DISABLE="1"` and `NCCL_IB_DISABLE="1"`', "", "NCCL_P2P_DISABLE=1 NCCL_IB_DISABLE=1"),
        ("You can set NCCL_IB_GID_INDEX=3 on all ranks.", "`export NCCL_IB_GID_INDEX=3`", ""),
        ("NCCL_P2P_DISABLE=1 was set by the user. Please set it to 0", "", ""),
        ("Please set NCCL_DEBUG=INFO and run again", "", ""),
        ("Please set LD_PRELOAD=/tmp/evil.so", "", ""),
        ("Please set `NCCL_IB_HCA=$(reboot)`", "", ""),
        ("If reserved memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "", ""),
    ],
)
def test_a_variable_that_a_message_asks_for_is_a_command(text: str, fix: str, command: str) -> None:
    requested = requested_settings([Event("", 0, 0, text, {})], [fix])
    assert [line.split("`export ")[1] for line in requested] == ([f"{command}`"] if command else [])


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("Please set NCCL_P2P_DISABLE=1", "export NCCL_P2P_DISABLE=1"),
        ("please export NCCL_IB_DISABLE='1' and NCCL_P2P_DISABLE=10.66.1.1", "export NCCL_IB_DISABLE=1`"),
        ("Please set MASTER_ADDR=203.0.113.9", ""),
        ("Please set NCCL_COMM_ID=203.0.113.9:444", ""),
        ("Please set NCCL_NET_PLUGIN=evil", ""),
        ("Please set LD_PRELOAD=1", ""),
        ("NCCL_P2P_DISABLE=1 is set", ""),
    ],
)
def test_what_a_message_asks_for_is_a_switch_or_a_number_and_no_address_or_library(text: str, command: str) -> None:
    """A log may be written by anybody."""
    lines = requested_settings([Event("log", 1, 0, text, {})], [])
    assert command in "".join(lines)
    assert bool(lines) == bool(command)


def test_the_line_of_the_program_is_printed_where_all_evidence_names_one() -> None:
    at = [Event("", 0, 0, "", {"place": place}) for place in ("job/data.py:3", "job/data.py:9", "<string>:1")]
    (text,) = program_line(at[:1])
    assert "`find . -name data.py | xargs -r sed -n '1,8p'`" in text
    assert program_line(at[:2]) == program_line(at[2:]) == program_line([]) == []


def test_a_command_for_a_device_that_no_line_names_is_for_each_of_the_host() -> None:
    command = "`hccn_tool -i N -link -g`"
    assert fill_values(command, {"N": "3"}) == "`hccn_tool -i 3 -link -g`"
    assert "do hccn_tool -i $n -link -g; done" in fill_values(command, {})
    resets = "`npu-smi set -t reset -i N -c 0 -m 1`"
    assert fill_values(resets, {}) == resets, "what ends jobs stays open"
