"""Which real program sets off each check of a watched program: file and test."""

from __future__ import annotations

TESTS = {
    "loss-diverged": "test_output_losses.py::test_what_is_wrong_with_the_loss_is_a_finding",
    "loss-spiked": "test_output_losses.py::test_what_is_wrong_with_the_loss_is_a_finding",
    "loss-silent": "test_output_losses.py::test_a_program_that_falls_silent",
    "resume-state-lost": "test_resume.py::test_what_is_lost_is_named",
    "training-slowed-down": "test_own_past.py::test_a_part_that_is_slower_than_before_is_named",
    "loss-differs-by-rank": "test_output_losses.py::test_ranks_of_one_launch_are_compared",
}
