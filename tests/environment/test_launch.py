"""Which rank of which job a process is, where launchers nest and where variables contradict each other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.environment.job_context import detect
from doctor.environment.launch import innermost_launch
from doctor.environment.launchers import launchers
from doctor.environment.mounted_rank_table import MountedRankTable
from doctor.environment.variables import EnvironmentVariables
from tests.environment.contexts import TABLE, Environ, context, launcher_examples, rank_context, reader
from tests.environment.launchers.test_environment import ASCEND
from tests.environment.launchers.test_environment import EXAMPLE as SHELL
from tests.environment.launchers.test_mpirun import EXAMPLE as MPIRUN
from tests.environment.launchers.test_msrun import EXAMPLE as MSRUN
from tests.environment.launchers.test_srun import EXAMPLE as SRUN
from tests.environment.launchers.test_torchrun import EXAMPLE as TORCHRUN


def test_without_a_launcher_there_is_no_rank() -> None:
    allocated = {"PATH": "/bin", "SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n[0-3]"}
    for environ in (allocated, {"RANK": "", "TORCHELASTIC_RUN_ID": ""}):
        assert detect(environ, reader({}), as_rank=True).launcher == ""


class TestNesting:
    @pytest.mark.parametrize(
        ("environ", "launcher", "outer"),
        [
            ({**SRUN, **TORCHRUN}, "torchrun", ["srun"]),
            ({**SRUN, **MPIRUN}, "mpirun", ["srun"]),
            ({**MPIRUN, **TORCHRUN}, "torchrun", ["mpirun"]),
            ({**SRUN, **MSRUN}, "msrun", ["srun"]),
        ],
    )
    def test_the_innermost_launcher_counts_and_a_note_says_so(
        self, environ: Environ, launcher: str, outer: list[str]
    ) -> None:
        detected = rank_context(environ)
        assert detected.launcher == launcher
        assert detected.launchers == (launcher, *outer)
        note = f"started by {launcher} inside of {' and '.join(outer)}"
        assert any(note in text for text in detected.launch_notes)

    def test_a_loop_in_a_single_task_is_the_innermost(self) -> None:
        detected = rank_context({**SRUN, "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", **SHELL})
        assert (detected.launcher, detected.rank, detected.world_size) == ("environment", 1, 4)
        assert detected.launch_notes == (
            "started by a loop in a shell inside of srun: the ranks are those of a loop in a shell",
        )

    def test_launches_of_a_single_process_are_passed_over(self) -> None:
        mpirun = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}
        torchrun = {**TORCHRUN, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
        detected = context({**SRUN, **mpirun, **torchrun})
        assert (detected.launcher, detected.rank, detected.world_size) == ("srun", 3, 4)

    def test_variables_that_contradict_the_launcher_are_noted(self) -> None:
        detected = rank_context({**SRUN, "RANK": "0", "WORLD_SIZE": "4"})
        assert (detected.launcher, detected.rank) == ("srun", 3)
        (note,) = detected.launch_notes
        assert note.startswith("RANK is 0, but srun made this rank 3 of 4")

    def test_variables_that_agree_with_it_are_not(self) -> None:
        assert rank_context({**SRUN, "RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": "n0"}).launch_notes == ()


class TestTheRankTable:
    NO_SIZE = {"RANK_TABLE_FILE": "/t.json", "RANK_ID": "9"}

    def test_says_the_size_that_no_variable_says(self) -> None:
        detected = context(self.NO_SIZE, {"/t.json": TABLE})
        assert (detected.world_size, detected.problems, detected.conflicts) == (16, (), ())

    def test_that_does_not_list_the_rank_says_nothing(self) -> None:
        detected = context({**self.NO_SIZE, "RANK_ID": "99"}, {"/t.json": TABLE})
        assert detected.world_size is None
        assert detected.conflicts == ("RANK_SIZE is not set, expected a whole number from 1",)

    def test_lists_a_ranks_position_on_its_host(self) -> None:
        assert MountedRankTable("/t.json", text=TABLE).position(11) == (3, 8, 1, 16)
        assert MountedRankTable("/t.json", text=TABLE).position(16) is None


class TestRegistry:
    @pytest.mark.parametrize(("name", "environ"), list(launcher_examples()))
    def test_every_launcher_recognises_its_own_example_and_no_other(self, name: str, environ: Environ) -> None:
        present = [launcher.name for launcher in launchers() if launcher.is_present(EnvironmentVariables(environ))]
        markers = {launcher.name: launcher.markers for launcher in launchers()}[name]
        assert present == ([name] if markers else [])
        launch = innermost_launch(environ)
        assert (launch.launcher.name if launch else "") == (name if environ else "")


@given(
    st.dictionaries(
        st.sampled_from(sorted({*TORCHRUN, *MPIRUN, *SRUN, *MSRUN, *SHELL, *ASCEND})), st.text(max_size=12), max_size=12
    )
)
def test_no_environment_is_too_strange(environ: Environ) -> None:
    launch = innermost_launch(environ)
    if launch and not launch.problems and not launch.is_scheduler_process:
        assert launch.rank is not None and launch.world_size is not None
        assert 0 <= launch.rank < launch.world_size
