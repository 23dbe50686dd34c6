"""NCCL_ALGO and NCCL_PROTO: what each release of NCCL refuses, passes over and follows."""

from __future__ import annotations

import pytest

from doctor.job.nccl_lists import list_faults

NEW, OLD, UNKNOWN = (2, 27, 3), (2, 21, 5), ()
ENDS, PASSES, FOLLOWS = True, False, None
ROWS: list[tuple[str, str, bool | None, bool | None]] = [
    # variable, value, 2.24 and later, before
    ("ALGO", "Ring", FOLLOWS, FOLLOWS),
    ("ALGO", "allreduce:tree,collnetdirect;broadcast:ring", FOLLOWS, FOLLOWS),
    ("ALGO", "^tree", FOLLOWS, FOLLOWS),
    ("ALGO", "Rign", ENDS, PASSES),
    ("ALGO", "Ring,Trea", ENDS, PASSES),
    ("ALGO", "ring, tree", ENDS, PASSES),
    ("ALGO", "tree,^ring", ENDS, PASSES),
    ("ALGO", "ring;tree", ENDS, PASSES),
    ("ALGO", "sendrecv:ring", ENDS, PASSES),
    ("ALGO", "alltoall:ring", ENDS, PASSES),
    ("ALGO", "Tree", ENDS, FOLLOWS),
    ("ALGO", "NVLS,Tree", ENDS, FOLLOWS),
    ("ALGO", "Tree;broadcast:ring;reduce:ring", FOLLOWS, FOLLOWS),
    ("ALGO", "^Ring", ENDS, FOLLOWS),
    ("ALGO", "PAT;broadcast:ring", PASSES, FOLLOWS),
    ("PROTO", "Simple", FOLLOWS, FOLLOWS),
    ("PROTO", "^LL128;allreduce:LL128", FOLLOWS, FOLLOWS),
    ("PROTO", "LL256", ENDS, ENDS),
    ("PROTO", "LL,LL256", ENDS, PASSES),
    ("PROTO", "^LL256", ENDS, PASSES),
]


@pytest.mark.parametrize(("variable", "value", "new", "old"), ROWS, ids=[f"{row[0]} {row[1]}" for row in ROWS])
def test_what_a_release_makes_of_it(variable: str, value: str, new: bool | None, old: bool | None) -> None:
    for release, outcome in ((NEW, new), (OLD, old), (UNKNOWN, old)):
        results = [fault.ends for fault in list_faults({f"NCCL_{variable}": value}, release)]
        assert results == ([] if outcome is FOLLOWS else [outcome]), release


def test_a_long_value_is_refused_unread() -> None:
    [fault] = list_faults({"NCCL_ALGO": "ring," * 5000}, NEW)
    assert fault.expected == "a shorter list" and len(fault.value) < 100
