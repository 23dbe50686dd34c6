# ruff: noqa: E501 - messages are kept as they were printed
"""What library-crash-logged finds."""

from __future__ import annotations

from tests.checks.gpu_hosts import log
from tests.checks.run_check import messages, run_check

QUIET = (
    "python3[12]: segfault at 0 ip 00007f sp 00007f error 4 in libcuda.so.1[7f+1000]",
    "segfault at 7f797fe00000 ip 00007f7c7ac69996",
)


def test_messages_that_are_no_fault() -> None:
    assert messages(run_check("library-crash-logged", {"w1": [log(*QUIET)]})) == []


def test_the_fault_is_named() -> None:
    ((_, text),) = messages(
        run_check(
            "library-crash-logged",
            {
                "w1": [
                    log(
                        "pt_main_thread[2536443]: segfault at 7f797fe00000 ip 00007f7c7ac69996 sp 00007f7c12fd7c30 error 4 in libnccl.so.2[7f7c7ac00000+d3d3000]"
                    )
                ]
            },
        )
    )
    assert text.startswith("process 2536443 (pt_main_thread) crashed in libnccl.so, 1 time in 24 hours")


def test_what_is_older_than_a_day_is_history() -> None:
    assert (
        messages(
            run_check(
                "library-crash-logged",
                {
                    "w1": [
                        log(
                            "pt_main_thread[2536443]: segfault at 7f797fe00000 ip 00007f7c7ac69996 sp 00007f7c12fd7c30 error 4 in libnccl.so.2[7f7c7ac00000+d3d3000]",
                            age=90000,
                        )
                    ]
                },
            )
        )
        == []
    )
