"""`doctor explain` finds pages by an error code or by a pasted line of a log."""

from __future__ import annotations

import time

import pytest

from doctor.cli.explain_search import explain_text
from doctor.cli.fast_explain import explanation
from doctor.diagnose.lookup import MAX_TEXT_CHARS, find, signature_blocks
from doctor.diagnose.signature import load_signatures

SIGNATURES = load_signatures()


@pytest.mark.parametrize(
    ("text", "first_line"),
    [
        ("EI0006", "ei0006-socket-timeout: "),
        ("ei0006", "ei0006-socket-timeout: "),
        ("EJ0001", "ej0001-hccp-init: "),
        ("ERR02200", "torch-npu-err-header: "),
        ("507018", "npu-507018-aicpu: "),
        ("Xid 79", "Xid 79: the GPU has fallen off the bus. What to do: restart the host. "),
        ("xid: 79", "Xid 79: "),
        ("Xid 31", "Xid 31 is no fault of the host"),
        ("nccl-connect-timeout", "nccl-connect-timeout: "),
        ("socketStartConnect: Connect to 10.0.0.1<50000> failed : Connection refused", "nccl-connect-timeout: "),
        ("[0] NCCL WARN Cuda failure 'out of memory'", "nccl-cuda-oom: "),
        ("DrvMngGetConsoleLogLevel failed. (ret=4)", "npu-log-level-unread: "),
        (
            "DrvMngGetConsoleLogLevel failed.\ndcmi model initialized failed, because the device is used",
            "npu-occupied: ",
        ),
        ("srun: error: Task launch for StepId=9.0 failed on node n5: Job credential expired", "slurm-credential: "),
        ("[n5:1] [[31923,0],1] selected pml ob1, but peer [[31923,0],0] on n4 selected pml ucx", "ompi-pml-differs: "),
        ("RuntimeError: launcher 'pdsh' not installed.", "deepspeed-pdsh-missing: "),
    ],
)
def test_a_code_or_a_line_leads_to_its_page(text: str, first_line: str) -> None:
    assert explain_text(text).startswith(first_line)


@pytest.mark.parametrize("name", ["EI0006", "507018", "raise-listen-queues", "formats", "listen-queue-short"])
def test_what_is_certain_needs_no_command_line_parser(name: str) -> None:
    assert explanation(name)


def test_words_lead_to_a_ranked_list() -> None:
    output = explain_text("shared memory docker")
    assert "`doctor explain NAME` shows one" in output
    names = [line.split()[0] for line in output.splitlines()[1:]]
    assert {"shm-too-small", "shm-docker-default"} <= set(names)
    assert explain_text("CUDA out of memory").splitlines()[1].split()[0] in ("cuda-oom", "nccl-cuda-oom")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "zzzqqq",
        "79",
        "quux frobnicated: job not found",
        "((((",
        "\x1b[31m\x07",
        "a" * 100_000,
        "(" * 5000,
        "\n" * 99,
    ],
)
def test_what_leads_nowhere_says_nothing(text: str) -> None:
    assert explain_text(text) == ""


def test_a_long_paste_costs_little() -> None:
    line = "Traceback (most recent call last): File x.py failed error timeout NCCL HCCL connect rank "
    began = time.process_time()
    explain_text((line * 50 + "\n") * 200)
    assert time.process_time() - began < 5
    assert len(line) < MAX_TEXT_CHARS


def test_the_blocks_of_the_files_are_all_signatures() -> None:
    assert len(list(signature_blocks())) == len(SIGNATURES)


@pytest.mark.full
@pytest.mark.parametrize("name", sorted(SIGNATURES))
def test_each_public_line_leads_to_a_signature_that_matches_it(name: str) -> None:
    for sample in SIGNATURES[name].samples[:1]:
        text = sample.text.split("\n")[0]
        matching = [
            signature.id
            for signature in SIGNATURES.values()
            if any(pattern.regex.search(text) for pattern in signature.compiled)
        ]
        ids = [match.signature.id for match in find(text[:MAX_TEXT_CHARS]) if match.is_exact]
        assert set(ids) <= set(matching)
        assert ids or not matching, text
