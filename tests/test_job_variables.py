"""Which variables describe a job: one list for settings, saved runs and checks."""

from __future__ import annotations

from doctor.environment.launchers import launchers
from doctor.job.job_size import OF_STEP, VARIABLES
from doctor.job.launch_config import LaunchConfig
from doctor.job.variable_values import value_rows
from doctor.job.variables import AGENT_STORE, JOB_WIDE, TABLE_VARIABLES, WORLD_SIZE_VARIABLES, relevant


def test_every_variable_with_a_meaning_for_the_job_is_on_the_list() -> None:
    names = {
        *JOB_WIDE,
        *TABLE_VARIABLES,
        *WORLD_SIZE_VARIABLES,
        *value_rows(),
        AGENT_STORE,
        *VARIABLES,
        OF_STEP,
        "SLURM_JOB_ID",
    }
    assert relevant(dict.fromkeys(names, "1")) == dict.fromkeys(sorted(names), "1")
    assert LaunchConfig.from_environment(dict.fromkeys(names, "1")).env == dict.fromkeys(sorted(names), "1")


def test_what_says_which_rank_a_process_is_does_not_describe_the_job() -> None:
    of_rank = {"RANK", "LOCAL_RANK", "RANK_ID", "DEVICE_ID", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "PMI_RANK"}
    assert relevant(dict.fromkeys(of_rank, "1")) == {}
    markers = {marker for launcher in launchers() for marker in launcher.markers} - {"MS_ROLE", OF_STEP, *VARIABLES}
    assert relevant(dict.fromkeys(markers, "1")) == {}


def test_no_secret_and_no_empty_value_is_on_it() -> None:
    assert relevant({"MS_TOKEN": "x", "HCCL_API_KEY": "x", "HCCL_BUFFSIZE": "", "MASTER_PASSWORD": "x"}) == {}
    assert relevant({"NCCL_KEYBOARD": "x", "MASTER_ADDR": "n1\n" * 5000})["NCCL_KEYBOARD"] == "x"
    assert len(relevant({"MASTER_ADDR": "n1" * 5000})["MASTER_ADDR"]) <= 4200
