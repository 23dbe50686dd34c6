"""A plan shows what will be done, and its digest tells when that is another thing by now."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from doctor.fix.plan import SCHEMA, FixPlan, HostPlan, StepProbe, host_plan, treated_checks
from doctor.fix.select import Untreated, choose_playbooks, ready_steps
from doctor.remedy.playbook import Playbook, PlaybookStep
from tests.fix.books import HOSTS, book, file, look, outcome, report, run, sample_finding, state


def planned(playbook: Playbook, *observed: StepProbe, **values: Any) -> HostPlan:
    choice = choose_playbooks(report(outcome("short", sample_finding("a1", **values))), [playbook])
    some = choice.by_host["a1"]
    return host_plan("a1", some, ready_steps(some, "a1"), look(*observed))


def test_commands_and_files_are_shown_as_they_will_be() -> None:
    steps = (run(1), file(2), file(3, line="y = 1"))
    sample_host_plan = planned(
        book("mend", ["short"], *steps), StepProbe(before="old 1"), *[StepProbe(file=state(b"x = 1\n"))] * 2
    )
    command, first, second = sample_host_plan.steps
    assert (command.run, command.undo) == ('expected=2\nset "$expected"', "before='old 1'\nset \"$before\"")
    assert first.diff[-2:] == (" x = 1", "+x = 2")
    assert second.diff[-3:] == (" x = 1", " x = 2", "+y = 1"), "a step begins with what those before it leave"
    assert sample_host_plan.has_actions


def test_a_file_that_is_so_already_is_left_out() -> None:
    sample_host_plan = planned(book("mend", ["short"], file()), StepProbe(file=state(b"x = 2\n")))
    assert sample_host_plan.steps[0].skip == "already in this state"
    assert not sample_host_plan.has_actions
    assert treated_checks(sample_host_plan) == set()


def test_a_link_is_said_to_be_one() -> None:
    sample_host_plan = planned(book("mend", ["short"], file()), StepProbe(file=state(None, "/run/x")))
    assert sample_host_plan.steps[0].note == "a link: /run/x is written"


def test_one_step_that_cannot_be_made_leaves_its_playbook_out() -> None:
    sample_host_plan = planned(
        book("mend", ["short"], run(), file(2)), StepProbe(), StepProbe(failure="/etc/x: the file system is read-only")
    )
    assert sample_host_plan.left_out == {"mend": "playbook mend, step 2: /etc/x: the file system is read-only"}
    assert not sample_host_plan.has_actions
    assert treated_checks(sample_host_plan) == set()


BROKEN = book("broken", ["short"], file(path="/etc/x"), run(2))
OTHERS = {
    "it changes the same file": (book("next", ["long"], file(path="/etc/x", line="y")), "both change /etc/x"),
    "it changes it by another name": (book("next", ["long"], file(path="/etc/link")), "both change /etc/x"),
    "a step of both is made once": (book("next", ["long"], run(sh="other"), run(2)), "both do “Step 2”"),
    "its commands change the file": (
        book("next", ["long"], PlaybookStep(1, "Keep it", file="/etc/?", keep=True), run(2)),
        "both change /etc/?",
    ),
    "it treats the same finding": (book("next", ["short"], run(sh="other")), "both treat short"),
    "the cause may be the failed one's": (
        book("next", ["wide"], run(sh="other")),
        "short may be the cause of what it treats",
    ),
    "it waits for one that waits": (book("next", ["long"], file(path="/etc/y", line="y")), "both change /etc/y"),
    "it has nothing to do with it": (book("next", ["long"], run(sh="other"), file(2, path="/etc/y")), ""),
}


@pytest.mark.parametrize("message", OTHERS)
def test_a_playbook_that_cannot_be_applied_holds_back_those_that_depend_on_it_alone(message: str) -> None:
    other, reason = OTHERS[message]
    middle = [book("middle", ["short"], file(path="/etc/y"))] if message == "it waits for one that waits" else []
    outcomes = [outcome(name, sample_finding("a1")) for name in ("short", "long", "wide")]
    choice = choose_playbooks(report(*outcomes), [BROKEN, *middle, other], causes={"wide": ("short",)})
    treatments = choice.by_host["a1"]
    ready = ready_steps(treatments, "a1")
    real = {"/etc/link": "/etc/x"}
    probes = [
        StepProbe(failure="it cannot be read")
        if step.playbook is BROKEN and step.template.file
        else StepProbe(file=state(b"", real.get(step.template.file, step.template.file)))
        if step.template.file and not step.template.keep
        else StepProbe()
        for step in ready
    ]
    sample_host_plan = host_plan("a1", treatments, ready, look(*probes))
    assert sample_host_plan.left_out["broken"] == "playbook broken, step 1: it cannot be read"
    held = sample_host_plan.left_out.get("next", "")
    assert reason in held if reason else not held
    acting = {step.playbook for step in sample_host_plan.steps if not step.skip}
    assert ("next" in acting) is (not reason)
    assert sample_host_plan.has_actions is (not reason)


@pytest.mark.parametrize(
    ("playbook", "step_probes", "values"),
    [
        (
            book("mend", ["short"], run(sh='set "$expected" x'), file(2)),
            (StepProbe(), StepProbe(file=state(b"old"))),
            {},
        ),
        (book("mend", ["short"], run(), file(2, line="y")), (StepProbe(), StepProbe(file=state(b"old"))), {}),
        (None, (StepProbe(skip="does not apply here"), StepProbe(file=state(b"old"))), {}),
        (None, (StepProbe(), StepProbe(file=state(b"other", sha="t"))), {}),
        (None, (StepProbe(), StepProbe(file=state(None))), {}),
        (None, (StepProbe(), StepProbe(file=state(b"old", "/run/x"))), {}),
        (None, (StepProbe(), StepProbe(file=state(b"old"))), {"expected": 3}),
        (None, (StepProbe(), StepProbe(file=state(b"old"))), {"template": "another {observed}"}),
    ],
)
def test_whatever_differs_gives_another_digest(
    playbook: Playbook | None, step_probes: tuple[StepProbe, ...], values: dict[str, Any]
) -> None:
    usual = book("mend", ["short"], run(), file(2))
    digest = planned(usual, StepProbe(), StepProbe(file=state(b"old"))).digest
    assert planned(usual, StepProbe(), StepProbe(file=state(b"old")), age=7).digest == digest, "no step needs it"
    assert planned(playbook or usual, *step_probes, **values).digest != digest


def test_no_secret_is_in_a_plan() -> None:
    steps = (
        run(1, 'login --token="$key"', 'logout --token="$before"'),
        file(2, line="password = {key}"),
        PlaybookStep(3, "Use api_key={key}"),
    )
    sample_host_plan = planned(
        book("mend", ["short"], *steps),
        StepProbe(before="token=sesame-before"),
        StepProbe(file=state(b"password = sesame-file\n")),
        StepProbe(),
        key="token=sesame-key",
        template="secret: {key}",
    )
    assert b"sesame" not in msgspec.json.encode(sample_host_plan)


def test_a_playbook_that_would_take_back_what_another_does_is_left_out() -> None:
    """Ports are reserved; then the setting of now, without them, would be kept for the next boot."""
    reserve = book("reserve", ["short"], file(line="ports = 60000", replaces="^ports"))
    keep = book("keep", ["short"], file(line="ports =", replaces="^ports"), run(2))
    choice = choose_playbooks(report(outcome("short", sample_finding("a1"))), [reserve, keep])
    some = choice.by_host["a1"]
    step_probe = StepProbe(file=state(b"ports = 1\n"))
    sample_host_plan = host_plan("a1", some, ready_steps(some, "a1"), look(step_probe, step_probe, StepProbe()))
    assert [step.skip for step in sample_host_plan.steps] == ["", *["it would undo the change of reserve"] * 2]
    assert sample_host_plan.steps[0].diff[-1] == "+ports = 60000"


def test_playbooks_that_add_to_one_file_do_not_contradict_each_other() -> None:
    books = [book("one", ["short"], file(line="a = 1", replaces="^a")), book("two", ["short"], file(line="b = 1"))]
    some = choose_playbooks(report(outcome("short", sample_finding("a1"))), books).by_host["a1"]
    sample_host_plan = host_plan("a1", some, ready_steps(some, "a1"), look(*[StepProbe(file=state(None))] * 2))
    assert [step.skip for step in sample_host_plan.steps] == ["", ""]


def fix_plan(*plans: HostPlan, untreated: tuple[Untreated, ...] = ()) -> FixPlan:
    return FixPlan(SCHEMA, "", "", "", "", HOSTS, (), (), plans, untreated)


def test_the_code_tells_whether_all_that_was_found_is_planned() -> None:
    done = planned(book("mend", ["short"], run()), StepProbe())
    skipped = planned(book("mend", ["short"], run()), StepProbe(skip="does not apply here"))
    assert fix_plan().code == 0
    assert fix_plan(done).code == 0
    assert fix_plan(skipped).code == 10
    assert fix_plan(done, untreated=(Untreated("a2", "long", "no playbook", "none"),)).code == 10
    assert fix_plan(done, untreated=(Untreated("a1", "short", "by hand as well", "hands"),)).code == 0
    assert fix_plan(done, untreated=(Untreated("a2", "short", "as the site wants it", "waived"),)).code == 0
    assert fix_plan(done, untreated=(Untreated("a2", "short", "not reached", "unknown"),)).code == 12


def test_what_follows_from_a_cause_that_no_playbook_fixes_is_not_adapted_to_it() -> None:
    """A gateway is not moved into the segment of an address that is itself the fault."""
    cause, consequence = (
        outcome("cause", sample_finding("a1")),
        outcome("short", sample_finding("a1").following("cause"), sample_finding("a2")),
    )
    mend, by_hand = book(), book("hands", ["cause"], PlaybookStep(1, "Do it"))
    for books in ([mend], [mend, by_hand], [mend, book("named", ["cause"], explicit=True)]):
        choice = choose_playbooks(report(cause, consequence), books)
        assert set(choice.by_host) == {"a2"}, "a fault of its own is fixed"
        assert "it follows from cause; fix that first" in [untreated.reason for untreated in choice.untreated]
    for books, names in (([mend, book("other", ["cause"])], ()), ([mend], ("short",))):
        assert "short" in {
            treatment.check for treatment in choose_playbooks(report(cause, consequence), books, names).by_host["a1"]
        }
    assert set(choose_playbooks(report(consequence), [mend]).by_host) == {"a1", "a2"}, "no such cause was found"
