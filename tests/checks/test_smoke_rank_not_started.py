from __future__ import annotations

import pytest

from tests.checks.broken_off import only, only_finding, trouble
from tests.checks.smoke import ran

NAME = "smoke_rank_not_started"


def test_only_its_failure_kind_is_a_finding() -> None:
    only(NAME, "not-started")


def test_the_rank_and_its_words() -> None:
    text = "ModuleNotFoundError: No module named 'torch'"
    finding, todo = only_finding(NAME, ran(4, 2, trouble("not-started", 2, 3, stage="start", text=text)))
    assert str(finding) == f"ranks 2 and 3 did not start: {text}"
    assert finding.hosts == ("w2",)
    assert "cluster-doctor[smoke]" in todo


@pytest.mark.parametrize(
    ("text", "begin"),
    [
        ("ImportError: libhccl.so: cannot open shared object file", "Set CANN's environment"),
        ("RuntimeError: the CANN toolkit was not found", "Set CANN's environment"),
        ("RuntimeError: Invalid device ordinal", "Check ASCEND_RT_VISIBLE_DEVICES"),
        (
            "ImportError: cannot import name 'x' from 'peft.utils'",
            "with the interpreter of the job, on each host, in the program's folder, the versions that it names: ",
        ),
        (
            "ImportError: cannot import name 'x' from 'torch'",
            "with the interpreter of the job, on each host, in the program's folder, the versions that it names: ",
        ),
        ("CUDA driver is a stub library", "`unset LD_LIBRARY_PATH`"),
        ("Unrecognized key 'bogus' in CUDA allocator config.", "`unset PYTORCH_CUDA_ALLOC_CONF"),
        ("CUDA error: device-side assert triggered", None),
        ("OSError: libstdc++.so.6: cannot open shared object file", "`unset LD_LIBRARY_PATH`"),
    ],
)
def test_the_remedy_is_that_of_the_cause(text: str, begin: str | None) -> None:
    finding, _ = only_finding(NAME, ran(4, 2, trouble("not-started", 2, stage="start", text=text)))
    assert finding.values["remedy"].startswith(begin) if begin else finding.values["remedy"] == ""
