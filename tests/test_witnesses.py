"""What one host says gets into no other host's file, rule or verdict: every fact of all hosts has its witness."""

from __future__ import annotations

import msgspec
import pytest

from doctor.engine.catalog import load_checks
from doctor.engine.fact import ProvenFact
from doctor.engine.record import load_run
from tests.attack.liars import (
    ALLOWED,
    PROVEN,
    TABLE,
    Fleets,
    attacks,
    crossing,
    first_hosts,
    forged_answers,
    forged_proofs,
    saved_run,
    told_stories,
    witnesses,
)
from tests.bench.large_fleet import sickened
from tests.hosts.fleet import Fleet

pytestmark = pytest.mark.every

KINDS = {
    line[2:].partition(":")[0] for line in TABLE.read_text("utf-8").splitlines() if line[:2] == "# " and ": " in line
}


def test_every_fact_of_all_hosts_is_in_the_table() -> None:
    """A new one: say in `tests/witnesses.toml` why one host's word does no harm, then try `liars` with it."""
    rows = {(check.name, need.parameter) for check, need in crossing(load_checks())}
    assert {(check, parameter) for check, parameters in witnesses().items() for parameter in parameters} == rows
    assert {kind for parameters in witnesses().values() for kind in parameters.values()} <= KINDS
    assert set(ALLOWED) <= KINDS


def test_nobody_proves_to_be_another_host() -> None:
    assert set(PROVEN) == {need.type for _, need in crossing(load_checks()) if issubclass(need.type, ProvenFact)}
    assert [*forged_proofs(300, 1), *forged_answers(300, 1)] == []


@pytest.mark.every
@pytest.mark.hosts
def test_a_liar_among_the_hosts(fleet_a2: Fleet) -> None:
    """Every fact of all hosts three times, and every story; `python -m tests.attack liars 10000` is the campaign."""
    saved = saved_run(fleet_a2)
    for count, sick in ((2, True), (4, True), (4, False)):
        document = first_hosts(saved, count)
        document = sickened(document, 0.0) if sick else document
        fleets = Fleets(load_run(msgspec.json.encode(document), "run"))
        assert list(attacks(fleets, 190, seed=count)) == []
        assert count == 2 or list(told_stories(fleets)) == []
