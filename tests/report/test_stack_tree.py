"""One tree of the stacks of all ranks."""

from __future__ import annotations

from doctor.report.layout.smoke_section import MAX_LINES, stack_tree


def stack(*calls: str) -> str:
    """As faulthandler writes it, from calls such as ``main:9``, the innermost first."""
    frames = (f'  File "/job/train.py", line {call.partition(":")[2]} in {call.partition(":")[0]}' for call in calls)
    return "Current thread 0x1 (most recent call first):\n" + "\n".join(frames)


def test_what_ranks_have_in_common_is_shown_once() -> None:
    waits, saves = stack("wait:3", "step:7", "main:9"), stack("write:4", "save:5", "main:9")
    assert stack_tree({0: waits, 1: saves, 2: waits}) == [
        (0, "main at train.py:9", (0, 1, 2)),
        (1, "step at train.py:7 > wait at train.py:3", (0, 2)),
        (1, "save at train.py:5 > write at train.py:4", (1,)),
    ]


def test_a_stack_that_ends_where_others_go_on() -> None:
    rows = stack_tree({0: stack("main:9"), 1: stack("wait:3", "main:9")})
    assert rows == [(0, "main at train.py:9", (0, 1)), (1, "wait at train.py:3", (1,))]


def test_stacks_with_nothing_in_common() -> None:
    assert [row[0] for row in stack_tree({0: stack("a:1"), 1: stack("b:2")})] == [0, 0]


def test_one_stack_or_none_is_no_tree() -> None:
    assert stack_tree({}) == stack_tree({3: stack("main:9")}) == stack_tree({0: "no frame", 1: "none"}) == []


def test_loader_workers_are_left_out_and_deep_stacks_are_cut() -> None:
    deep = stack(*(f"call{number}:{number}" for number in range(9, 0, -1)))
    [(_, calls, _)] = stack_tree({0: deep + "\nloader worker 7\n" + stack("get:1"), 1: deep})
    assert calls.startswith("... > ") and "get" not in calls


def test_the_programs_own_line_is_shown_above_the_calls_of_libraries() -> None:
    lines = [f'  File "/opt/site-packages/fsdp.py", line {number} in wait{number}' for number in range(6)]
    text = "\n".join([*lines, '  File "/job/train.py", line 42 in step', '  File "/job/train.py", line 9 in main'])
    [(_, calls, _)] = stack_tree({0: text, 1: text})
    assert calls.startswith("... > step at train.py:42 > ... > wait3 at fsdp.py:3") and "main" not in calls


def test_many_different_stacks_are_bounded_and_the_largest_branch_comes_first() -> None:
    stacks = {rank: stack(f"own{rank}:1", "main:9") for rank in range(500)}
    stacks |= {rank: stack("wait:3", "main:9") for rank in range(500, 600)}
    rows = stack_tree(stacks)
    assert len(rows) == MAX_LINES and rows[1][1:] == ("wait at train.py:3", tuple(range(500, 600)))


def test_what_a_program_calls_its_functions_shows_no_escapes() -> None:
    [(_, calls, _), *_] = stack_tree(dict.fromkeys((0, 1), stack("\x1b[31mred:9")))
    assert "\x1b" not in calls
