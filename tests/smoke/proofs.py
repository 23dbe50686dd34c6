"""Which real run sets off each check of the smoke run. A check that no fault has ever set off is not proven.

The checks that judge training and collectives are proven by faults in the program of the ranks, not of a host, so that
they have no row in `tests.faults`. A check is proven by a wrong program, by a kind of fault, or by a test named here.
"""

from __future__ import annotations

from doctor.engine.smoke_failures import FAILURE_KINDS
from tests.smoke.faults import KINDS
from tests.smoke.mutants import MUTANTS

TESTS = {
    "smoke-collective-wrong": "test_slow_and_wrong.py::test_a_wrong_sum_on_one_rank",
    "smoke-learning-differs": "test_slow_and_wrong.py::test_a_wrong_sum_in_the_learning_stage_alone",
    "smoke-device-wrong": "test_slow_and_wrong.py::test_a_rank_on_another_device_or_on_anothers",
    "smoke-device-miscomputes": "test_device_stage.py::test_a_torch_that_computes_and_copies_wrongly",
    "smoke-device-slow": "test_device_stage.py::test_a_rank_that_a_real_quota_holds_back_is_slow",
    "smoke-device-below-floor": "test_device_stage.py::test_a_memory_below_what_its_vendor_expects",
    "smoke-rank-slow": "test_slow_and_wrong.py::test_a_slow_rank_is_told_by_what_it_is_slow_in",
    "smoke-input-slow": "test_slow_and_wrong.py::test_a_slow_rank_is_told_by_what_it_is_slow_in",
    "smoke-host-slow": "test_slow_and_wrong.py::test_a_rank_whose_exchanges_are_all_slow",
    "smoke-link-slow": "test_slow_and_wrong.py::test_a_pair_of_ranks_whose_exchanges_are_slow",
    "smoke-network-silent": "test_hosts.py::test_a_link_between_two_hosts_that_drops_everything",
    "smoke-host-silent": "test_hosts.py::test_a_host_that_falls_silent",
    "smoke-environment-fails": "test_hosts.py::test_an_interface_of_the_jobs_that_nobody_else_reaches",
    "smoke-fleet-slow": "test_cli_smoke.py::test_a_fleet_that_is_slower_than_its_baseline",
    "smoke-host-unobserved": "test_hosts.py::test_a_host_whose_reports_stop_while_it_trains",
    "smoke-rank-not-started": "test_hosts.py::test_a_host_without_torch",
    "smoke-version-differs": "test_hosts.py::test_hosts_with_other_versions_and_without_numpy",
    "smoke-numpy-missing": "test_hosts.py::test_hosts_with_other_versions_and_without_numpy",
    "smoke-rank-never-joined": "test_hosts.py::test_a_firewall_before_the_port_that_the_ranks_meet_at",
    "smoke-loader-failed": "test_hosts.py::test_a_host_with_one_megabyte_of_shared_memory",
    "smoke-budget-spent": "test_launch.py::test_the_budget_is_spent",
}
"""File and test."""


def proven() -> set[str]:
    """The names of all checks that a real run sets off."""
    by_faults = {FAILURE_KINDS[kind].check for kinds in KINDS.values() for kind in kinds}  # type: ignore[index]
    return {*TESTS, *by_faults, *(mutant.check for mutant in MUTANTS)}
