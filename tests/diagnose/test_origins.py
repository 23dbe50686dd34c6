"""Logs of several hosts: whose output a log holds, and who is not accused for it."""

from __future__ import annotations

from doctor.diagnose.decide import diagnose
from doctor.diagnose.diagnosis import Diagnosis
from doctor.diagnose.read.scan import scan
from tests.diagnose.test_rules import MATCHER, SIGNATURES, TIMED_OUT

FULL = "[rank3]: OSError: [Errno 28] No space left on device\n"


def of_hosts(**texts: str) -> Diagnosis:
    """A diagnosis of logs by host and name: ``n1__rank_0`` is n1:/job/rank_0.log."""
    readings = []
    for number, (key, text) in enumerate(texts.items()):
        host, _, name = key.partition("__")
        reading = scan(
            f"{host}:/job/{name.replace('_dash_', '-')}.log", [text.encode()], MATCHER, file=number, year=2026
        )
        reading.summary.origin = host
        readings.append(reading)
    return diagnose(readings, SIGNATURES)


def culprits(diagnosis: Diagnosis) -> list[tuple[int | None, str]]:
    return [(culprit.rank, culprit.host) for cause in diagnosis.causes for culprit in cause.culprits]


def test_the_log_of_one_rank_is_of_the_host_on_which_it_lies() -> None:
    assert culprits(of_hosts(n1__rank_0="step 1\n", n2__rank_3=FULL)) == [(3, "n2")]


def test_the_output_of_all_ranks_in_one_file_does_not_accuse_the_host_of_the_file() -> None:
    assert culprits(of_hosts(n1__slurm_dash_77=FULL, n2__other="step 1\n")) == [(3, "")]
    assert culprits(of_hosts(n1__train=FULL, n2__other="step 1\n")) == [(3, "")]


def test_each_host_with_an_output_of_its_own_is_accused_for_it() -> None:
    assert culprits(of_hosts(n1__train="step 1\n", n2__train=FULL)) == [(3, "n2")]


def test_a_rank_that_two_hosts_claim_is_that_of_the_log_with_its_name() -> None:
    other = "[rank3]: ValueError: a line that quotes another rank\n"
    assert culprits(of_hosts(n1__rank_0=other, n2__rank_3=FULL)) == [(3, "n2")]


def test_a_rank_whose_log_was_read_in_part_is_not_called_silent() -> None:
    def silent(incomplete: bool) -> Diagnosis:
        readings = [
            scan(f"rank_{rank}.log", [text.encode()], MATCHER, file=rank, year=2026)
            for rank, text in enumerate([TIMED_OUT, "step 3\n", TIMED_OUT])
        ]
        readings[1].summary.incomplete = incomplete
        return diagnose(readings, SIGNATURES)

    assert culprits(silent(False)) == [(1, "")]
    diagnosis = silent(True)
    assert not diagnosis.causes and diagnosis.undecidable
    assert "rank 1 may have reported an error" in diagnosis.undecidable.reason
