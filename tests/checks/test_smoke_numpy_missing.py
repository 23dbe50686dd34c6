from __future__ import annotations

from doctor.facts.smoke import TorchImported
from tests.checks.smoke import alter, findings_of, page, ran, run_check, start_events, started, training

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
    masks = run_check("smoke_mask_differs", run, training(run), starts)
    assert masks.unknown[""].root_cause == "smoke-numpy-missing"


def test_a_single_host_is_not_compared() -> None:
    run = ran(4, 1)
    assert run_check(NAME, run, started(run)).skipped
