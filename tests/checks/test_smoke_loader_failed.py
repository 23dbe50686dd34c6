from __future__ import annotations

from doctor.facts.smoke.further_stages import LoaderResult
from tests.checks.smoke import alter, findings_of, loader, loader_events, page, ran

NAME = "smoke_loader_failed"
FULL = "unable to allocate shared memory(shm) for file </torch_1>: No space left on device (28)"


def test_loaders_that_work() -> None:
    assert findings_of(NAME, ran(), loader(ran())) == ()


def test_ranks_of_a_host_that_failed_alike_are_one_finding() -> None:
    run = ran(4, 2)
    (finding,) = findings_of(
        NAME, run, loader(run, alter(loader_events(run), (2, 3), LoaderResult, text=FULL, digests={}, seeds=()))
    )
    assert str(finding) == f"the data loader of ranks 2 and 3 failed: {FULL}"
    assert finding.hosts == ("w2",)
    assert "--shm-size" in page(NAME, finding)


def test_what_a_host_prints_is_made_harmless() -> None:
    run = ran(2, 2)
    events = alter(loader_events(run), 1, LoaderResult, text="\x1b[31mred\nline")
    (finding,) = findings_of(NAME, run, loader(run, events))
    assert "\x1b" not in str(finding) and "\n" not in str(finding)
