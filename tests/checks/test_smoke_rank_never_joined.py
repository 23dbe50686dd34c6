from __future__ import annotations

from doctor.engine.result import accused_hosts
from doctor.report.layout.smoke_section import failure_text
from tests.checks.broken_off import only, only_finding, trouble
from tests.checks.smoke import ran

NAME = "smoke_rank_never_joined"


def test_only_its_failure_kind_is_a_finding() -> None:
    only(NAME, "never-joined")


def test_the_rank_and_what_it_met() -> None:
    text = "head (127.0.0.9) port 29500 refuses connections"
    finding, todo = only_finding(NAME, ran(4, 2, trouble("never-joined", 3, stage="rendezvous", text=text)))
    assert str(finding) == f"rank 3 never joined: {text}"
    assert finding.hosts == ("w2",)
    assert "replace 127.0.0.9 by it in the line of head" in str(finding.values["remedy"])
    assert "getent hosts" in todo and "w2" in todo


def test_a_host_that_has_the_address_of_the_master_as_well() -> None:
    text = "w2 has 10.1.0.1 as well, the address of w1: 10.1.0.1 port 29500 refuses connections"
    finding, todo = only_finding(NAME, ran(4, 2, trouble("never-joined", 2, 3, stage="rendezvous", text=text)))
    assert finding.hosts == ("w2",)
    assert "On w2, `ip -o address show to 10.1.0.1` prints" in todo
    assert "`ip address del 10.1.0.1/<prefix> dev <interface>`" in todo


def test_ranks_that_others_did_not_reach_are_not_called_late() -> None:
    text = "w1 gives w2, w3 no answer to a new connection, though they have come before"
    failure = trouble("never-joined", 0, stage="rendezvous", text=text, unreached=True)
    finding, _ = only_finding(NAME, ran(4, 2, failure))
    assert str(finding) == f"other ranks could not join rank 0: {text}"
    assert finding.hosts == ("w1",)
    assert failure_text(failure) == "could not be joined"
    assert failure_text(trouble("never-joined", 0)) == "did not join"


def test_of_all_hosts_none_is_accused() -> None:
    """Nothing shows which of both fails: another check may, and a job with spare hosts leaves out none of them."""
    both, _ = only_finding(NAME, ran(4, 2, trouble("never-joined", 0, 1, 2, 3, stage="rendezvous", text="no answer")))
    assert (both.hosts, accused_hosts(both, 2)) == (("w1", "w2"), ())
    one, _ = only_finding(NAME, ran(4, 2, trouble("never-joined", 2, 3, stage="rendezvous", text="no answer")))
    assert (one.hosts, accused_hosts(one, 2)) == (("w2",), ("w2",))
