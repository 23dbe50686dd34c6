"""How a plan reads."""

from __future__ import annotations

from doctor.fix.apply import HostResult
from doctor.fix.plan import SCHEMA, FixPlan, HostPlan, PlaybookSummary, StepPreview, TreatedFinding
from doctor.fix.render_plan import plan_text
from doctor.fix.render_progress import host_result_text, verification_text
from doctor.fix.select import Untreated
from doctor.fix.verify import Verification

BOOK = PlaybookSummary("mend", "Longer queues", "host admin", "low", True)
STEPS = (
    StepPreview("mend", "Set it", "run", "sysctl -w x=2", "sysctl -w x=1"),
    StepPreview("mend", "Write it down", "file", diff=("--- /etc/x", "+++ /etc/x", "@@ -1 +1 @@", "-x = 1", "+x = 2")),
    StepPreview("mend", "For Debian", "run", "apt", skip="does not apply here"),
)


def host(name: str, **more: object) -> HostPlan:
    parameters = {
        "treated": (TreatedFinding("short", f"it is 1 on {name}", "mend"),),
        "steps": STEPS,
        "root": "sudo",
        "survives": {"mend": ""},
        **more,
    }
    return HostPlan(name, **parameters)  # type: ignore[arg-type]


def plan(*plans: HostPlan, untreated: tuple[Untreated, ...] = ()) -> FixPlan:
    hosts = ("a1", "a2", "a3", "a4")
    return FixPlan(SCHEMA, "20261120-101502-beef", "", "1", "4 hosts from a test", hosts, (), (BOOK,), plans, untreated)


def test_hosts_that_get_the_same_are_one_group() -> None:
    remaining = (
        Untreated("a4", "long", "no playbook treats it", "none"),
        Untreated("a4", "dirty", "Clean it", "hands", "c", "vendor", ("Wipe",)),
    )
    assert (
        plan_text(plan(host("a1"), host("a2"), host("a3", failure="no root", steps=()), untreated=remaining))
        == """\
plan 20261120-101502-beef: 4 hosts from a test

a[1-2] (2/4), as root through sudo -n
  as for a1, each with its own name:
  mend: Longer queues
    host admin; risk: low; root; survives a reboot
    for short: it is 1 on a1
    1. Set it
       $ sysctl -w x=2
       undo: sysctl -w x=1
    2. Write it down
       --- /etc/x
       +++ /etc/x
       @@ -1 +1 @@
       -x = 1
       +x = 2
    3. For Debian (skipped: does not apply here)

not changed
  a3 (1/4): short: no root
  a4 (1/4): long: no playbook treats it

by hand
  a4 (1/4): dirty: Clean it (vendor)
    1. Wipe

Nothing has changed yet. To apply it to 2 hosts:
  doctor fix --apply 20261120-101502-beef
"""
    )


def test_hosts_in_use_are_named() -> None:
    text = plan_text(plan(host("a1", busy=("Slurm job 7 runs on it",))))
    assert "in use, not changed without --force\n  a1 (1/4): Slurm job 7 runs on it\n" in text


def test_what_a_host_prints_is_no_markup_and_no_escape() -> None:
    evil = "\x1b]0;owned\x07[red]\u202e\n"
    for text in (
        host_result_text(HostResult("a1", "stopped", (evil,), evil)),
        verification_text(Verification("a1", "short", "red", evil)),
        plan_text(plan(host("a1", failure=evil, steps=()), untreated=(Untreated("a2", "x", evil, "none"),))),
    ):
        assert not {"\x1b", "\x07", "\u202e"} & set(text)


def test_long_data_in_a_command_is_cut_unless_all_is_asked_for() -> None:
    undo = f"printf %s {'QUJD' * 40} | base64 -d >/etc/x"
    fix_plan = plan(host("a1", steps=(StepPreview("mend", "Set it", "run", "set", undo),)))
    assert "undo: printf %s QUJDQUJDQUJDQUJDQUJD...QUJDQUJD | base64 -d >/etc/x\n" in plan_text(fix_plan)
    assert undo in plan_text(fix_plan, verbose=True)
