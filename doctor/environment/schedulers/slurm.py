"""Slurm.

Source: srun(1) and sbatch(1), "OUTPUT ENVIRONMENT VARIABLES"; Slurm's "Prolog and Epilog Guide"
(SLURM_SCRIPT_CONTEXT); and the variables that Slurm 22.05 sets.
"""

from __future__ import annotations

from doctor.engine.sanitize import printable
from doctor.environment.launchers import LAUNCHERS
from doctor.environment.mounted_rank_table import MountedRankTable
from doctor.environment.scheduler import Allocation, JobScheduler
from doctor.environment.variables import EnvironmentVariables

_DAEMON_SCRIPTS = {"prolog_slurmd": "prolog", "epilog_slurmd": "epilog"}


class SlurmScheduler(JobScheduler):
    """Jobs, steps and daemon scripts of Slurm."""

    name = "slurm"
    title = "Slurm"
    priority = 10
    hosts_variable = "SLURM_JOB_NODELIST"
    host_name_variable = "SLURMD_NODENAME"

    def read(self, variables: EnvironmentVariables, table: MountedRankTable | None) -> Allocation | None:
        """See `JobScheduler.read`."""
        job, daemon_script = variables.text("SLURM_JOB_ID"), _DAEMON_SCRIPTS.get(variables.text("SLURM_SCRIPT_CONTEXT"))
        if not job and not daemon_script:
            return None
        in_step = _is_step_of_ranks(variables)
        nodes = variables.first_set("SLURM_STEP_NUM_NODES" if in_step else "SLURM_JOB_NUM_NODES", "SLURM_NNODES")
        source = "SLURM_STEP_NODELIST" if in_step else "SLURM_JOB_NODELIST"
        return Allocation(
            scheduler=self,
            job_id=printable(job, 40),
            hosts=variables.text(source),
            hosts_source=source,
            host_name=variables.text(self.host_name_variable),
            node_rank=variables.number("SLURM_NODEID", required=False),
            node_count=variables.number(nodes, minimum=1, required=False),
            daemon_script=daemon_script or "",
            restart=variables.text("SLURM_RESTART_COUNT"),
        )

    def describe_single_process(self, variables: EnvironmentVariables) -> list[str]:
        """See `JobScheduler.describe_single_process`."""
        step = variables.text("SLURM_STEP_ID")
        if step:
            return [f"step {printable(step, 20)}"]
        return ["batch script"] if "SLURM_PROCID" in variables else []


def _is_step_of_ranks(variables: EnvironmentVariables) -> bool:
    """Whether the step's hosts are those of the ranks. The step of mpirun's daemons leaves out mpirun's own host."""
    tasks = variables.number("SLURM_STEP_NUM_TASKS", required=False)
    of_daemons = any(launcher.daemon_marker in variables for launcher in LAUNCHERS if launcher.daemon_marker)
    return "SLURM_STEP_NODELIST" in variables and (tasks or 0) > 1 and not of_daemons


SCHEDULER = SlurmScheduler()
