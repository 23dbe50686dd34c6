"""The variables by which a process knows that it is a rank of a job, as its launcher set them."""

RANK_VARIABLES = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK"),
    ("PALS_RANKID", "PMI_SIZE", "PALS_LOCAL_RANKID"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ("PMIX_RANK", "PMIX_SIZE", ""),
    ("FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID"),
    ("RANK_ID", "RANK_SIZE", ""),
    ("MS_NODE_ID", "MS_WORKER_NUM", ""),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
)
"""Rank, number of ranks, rank within the host: the first row whose rank is set counts. Slurm's is the last, as a batch
script has it, too, and what it starts inherits it.

Sources: those of launchers.toml, whose launchers are all here; MVAPICH2, "Environment variables" (MV2_COMM_WORLD_*);
PMIx.
"""


def is_no_rank(environ):
    """Whether a process is MindSpore's scheduler or parameter server: it runs the job's program, and often inherits the
    number of the worker that the script started before it.

    Source: MindSpore, "Dynamic Cluster Startup", MS_ROLE.
    """
    return environ.get("MS_ROLE") in ("MS_SCHED", "MS_PSERVER")
