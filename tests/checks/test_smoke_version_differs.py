from __future__ import annotations

from typing import Any

from doctor.facts.smoke.first_stages import TorchImported
from doctor.smoke.results.environments import unlike_interpreters
from tests.checks.smoke import alter, findings_of, page, ran, run_check, start_events, started

NAME = "smoke_version_differs"


def findings(rank: int, ranks: int = 6, **versions: Any) -> list[tuple[str, tuple[str, ...]]]:
    """Of ranks on three hosts, of which the interpreter of one has other versions."""
    run = ran(ranks, 3)
    events = alter(start_events(run), rank, TorchImported, **versions)
    return [(str(finding), finding.hosts) for finding in findings_of(NAME, run, started(run, events))]


def test_the_same_versions() -> None:
    run = ran(6, 3)
    assert run_check(NAME, run, started(run)).complete
    assert not findings_of(NAME, run, started(run))


def test_another_version_is_named() -> None:
    assert findings(2, torch="2.6.0+cpu") == [("torch 2.6.0; 2 of 3 hosts have 2.13.0", ("w2",))]
    assert findings(4, numpy="1.26.4") == [("numpy 1.26; 2 of 3 hosts have 2.3", ("w3",))]
    assert findings(4, python="3.8.1") == [("Python 3.8; 2 of 3 hosts have 3.11", ("w3",))]


def test_what_installs_the_version_of_most_hosts() -> None:
    run = ran(6, 3)

    def pages(rank: int, **versions: Any) -> str:
        events = alter(start_events(run), rank, TorchImported, **versions)
        (finding,) = findings_of(NAME, run, started(run, events))
        return " ".join(page(NAME, finding).split())

    assert "`python3 -m pip install torch==2.13.0`" in pages(2, torch="2.6.0+cpu")
    managed = pages(4, numpy="1.26.4", managed=True)
    assert "`env PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install numpy==2.3`" in managed
    (of_python,) = findings_of(NAME, run, started(run, alter(start_events(run), 4, TorchImported, python="3.8.1")))
    assert of_python.values["case"] == "Python" and "`python3 -V`" in page(NAME, of_python)


def test_builds_and_patch_releases_are_not_compared() -> None:
    assert not findings(2, torch="2.13.0+cpu", numpy="2.3.9", python="3.11.2")


def test_a_host_without_numpy_is_another_checks() -> None:
    assert not findings(2, numpy=None)


def test_versions_that_are_none_are_unknown() -> None:
    assert findings(2, torch="\x1b[2J") == [("torch unknown; 2 of 3 hosts have 2.13.0", ("w2",))]


def test_a_single_host_is_not_compared() -> None:
    run = ran(4, 1)
    assert run_check(NAME, run, started(run)).skipped


def test_whose_torch_is_rarer() -> None:
    imported = {host: [TorchImported(-1, 1.0, "2.13.0", "3.11.7")] for host in ("a", "b", "c")}
    assert unlike_interpreters(imported, "gloo") == ([], "")
    imported["c"] = [TorchImported(-1, 1.0, "2.6.0", "3.11.7")]
    hosts, sentence = unlike_interpreters(imported, "gloo")
    assert hosts == ["c"]
    assert sentence.startswith("torch is 2.6.0 on c and 2.13.0 on a,b: ranks that differ in it wait")
    assert unlike_interpreters({host: imported[host] for host in ("a", "c")}, "gloo")[0] == ["a", "c"]


def test_whose_debug_level_makes_groups_of_its_own() -> None:
    imported = {host: [TorchImported(-1, 1.0, "2.13.0", "3.11.7")] for host in ("w1", "w2", "w3")}
    assert unlike_interpreters({**imported, "w4": []}, "gloo") == ([], "")
    variables = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
    with_it = [TorchImported(-1, 1.0, "2.13.0", "3.11.7", variables=variables)]
    hosts, sentence = unlike_interpreters({**imported, "w3": with_it}, "gloo")
    assert (hosts, "is detail on w3 and not set on w[1-2]:" in sentence) == (["w3"], True)
    assert unlike_interpreters({**imported, "w2": with_it, "w3": with_it}, "gloo")[0] == ["w1"]
    two = {"w1": imported["w1"], "w3": with_it}
    assert unlike_interpreters(two, "gloo")[0] == ["w3"], "of two, the one that sets it"
    assert unlike_interpreters(dict.fromkeys(imported, with_it), "gloo") == ([], "")
