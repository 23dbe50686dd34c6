from __future__ import annotations

from tests.checks.broken_off import only, only_finding, trouble
from tests.checks.smoke import ran

NAME = "smoke_collective_order"


def test_only_its_failure_kind_is_a_finding() -> None:
    only(NAME, "order")


def test_waiting_ranks_and_their_calls_are_named() -> None:
    sides = {0: "all_reduce #9 (4 x float32, group world)", 1: "all_reduce #7 (128 x float32, group tp2)"}
    finding, _ = only_finding(NAME, ran(4, 2, trouble("order", 0, calls=sides)))
    assert finding.hosts == ("w1",)
    assert sides[0] in str(finding) and sides[1] in str(finding)


def test_a_cycle_of_all_ranks_names_no_others() -> None:
    sides = {0: "all_reduce #9 (4 x float32, group world)", 1: "all_reduce #7 (128 x float32, group tp2)"}
    finding, _ = only_finding(NAME, ran(2, 1, trouble("order", 0, 1, calls=sides, waiting_ranks=())))
    assert str(finding).startswith("ranks 0 and 1 wait for each other in a cycle in step 2")


def test_one_line_of_the_program_with_different_groups_is_no_matter_of_order() -> None:
    calls = {0: "all_reduce #1 (3 x float32, group 2)", 1: "all_reduce #1 (3 x float32, group 1)"}
    library = 'File "/x/site-packages/torch/distributed/distributed_c10d.py", line 3252 in all_reduce'
    place = 'File "/home/user/train.py", line 41 in <module>'
    stacks = {0: f"{library}\n{place}", 1: f"{library}\n{place}"}
    finding, _ = only_finding(NAME, ran(2, 1, trouble("order", 0, calls=calls, stacks=stacks)))
    assert "depends on the rank" in str(finding.values["remedy"]) and "line 41" in str(finding.values["remedy"])
    for other in ("", library, f"{library}\n{place.replace('41', '57')}"):
        finding, _ = only_finding(NAME, ran(2, 1, trouble("order", 0, calls=calls, stacks={**stacks, 1: other})))
        assert not finding.values["remedy"], "not known to be one line, or two lines"
    only_libraries = {0: library, 1: library}
    finding, _ = only_finding(NAME, ran(2, 1, trouble("order", 0, calls=calls, stacks=only_libraries)))
    assert not finding.values["remedy"]
