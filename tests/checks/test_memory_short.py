from doctor.facts.memory import GIB, HostMemory
from tests.checks.looked import judged, said


def test_a_tenth_is_enough() -> None:
    assert said(judged("memory-short", {"a": [HostMemory(total=1000 * GIB, available=100 * GIB)]})) == []


def test_less_is_short() -> None:
    outcome = judged("memory-short", {"a": [HostMemory(total=1000 * GIB, available=64 * GIB)]})
    assert said(outcome) == [("a", "64 GiB of 1000 GiB of memory are available; expected at least 100 GiB")]
