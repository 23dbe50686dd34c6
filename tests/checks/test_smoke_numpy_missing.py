from __future__ import annotations

from doctor.facts.smoke.first_stages import TorchImported
from doctor.facts.smoke.training import ReferenceRun
from tests.checks.smoke import (
    alter,
    findings_of,
    page,
    ran,
    root_causes,
    run_check,
    start_events,
    started,
    training,
    training_events,
)

NAME = "smoke_numpy_missing"


def test_everywhere_or_nowhere_is_fine() -> None:
    run = ran(4, 2)
    assert run_check(NAME, run, started(run)).complete
    assert not findings_of(NAME, run, started(run))
    assert not findings_of(NAME, run, started(run, alter(start_events(run), (0, 2), TorchImported, numpy=None)))


def test_a_host_without_it_is_named_and_explains_the_masks() -> None:
    run = ran(4, 2)
    starts = started(run, alter(start_events(run), 2, TorchImported, numpy=None))
    (finding,) = findings_of(NAME, run, starts)
    assert (str(finding), finding.hosts) == ("NumPy cannot be imported; 1 of 2 hosts have it", ("w2",))
    assert "python3 -m pip install numpy" in page(NAME, finding)
    managed = alter(start_events(run), 2, TorchImported, numpy=None, managed=True)
    (finding,) = findings_of(NAME, run, started(run, managed))
    assert "`env PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install numpy`" in page(NAME, finding)
    masks = run_check("smoke_mask_differs", run, training(run), starts)
    assert masks.unknown[""].root_cause == "smoke-numpy-missing"


def test_a_host_without_it_trains_on_other_masks_and_so_its_reference_run_differs() -> None:
    """No device of it is at fault; a device of another host still is."""
    run = ran(6, 3)
    starts = started(run, alter(start_events(run), 4, TorchImported, numpy=None))
    losses = (4.6, 4.31, 4.0, 3.7)
    events = alter(training_events(run), (4, 5), ReferenceRun, losses=losses, params=1)
    outcome = run_check("smoke_reference_differs", run, training(run, events), starts)
    assert not outcome.findings
    assert root_causes(outcome) == {"smoke-numpy-missing"}
    assert findings_of("smoke_reference_differs", run, training(run, events), started(run))[0].hosts == ("w3",)
    of_another = alter(training_events(run), 0, ReferenceRun, losses=losses, params=1)
    assert findings_of("smoke_reference_differs", run, training(run, of_another), starts)[0].hosts == ("w1",)


def test_a_single_host_is_not_compared() -> None:
    run = ran(4, 1)
    assert run_check(NAME, run, started(run)).skipped
