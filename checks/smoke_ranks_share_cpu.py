from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check
from doctor.facts.smoke.first_stages import SmokeBinding
from doctor.smoke.model import SmokeRun
from doctor.smoke.results.trouble_findings import describe_ranks
from doctor.smoke.speed.cpu_quotas import shared_cpus


@check(severity=WARNING, area="smoke")
def smoke_ranks_share_cpu(run: SmokeRun, bindings: PerHost[SmokeBinding]) -> Iterator[Finding]:
    """Each rank of a host may run on a CPU of its own, where the host has one for it.

    ## Why it matters
    Every rank keeps a CPU busy with launching kernels. Ranks that are bound to one CPU take turns on it while the
    others are idle. Each step takes as many times as long, the devices wait, and loader workers, which inherit the
    binding, share that CPU too.

    ## What to do
    Start the ranks of {host} without the binding, or give each of them CPUs of its own. Open MPI: `mpirun --bind-to
    none`, or `--map-by slot:PE=8`; MPICH: `mpiexec -bind-to none`; Intel MPI: I_MPI_PIN=0. Slurm: `srun
    --cpus-per-task=8` for one task a rank, and all CPUs of the host for one task that starts all ranks, such as
    torchrun; or `srun --cpu-bind=none`. GOMP_CPU_AFFINITY, OMP_PROC_BIND, OMP_PLACES and KMP_AFFINITY bind the first
    thread of every rank to the same place: unset them, or set them differently for each rank. By hand: `taskset -c 0-7`
    before the command of the first rank, `taskset -c 8-15` before that of the second. `for p in $(pgrep python); do
    taskset -cp $p; done` shows where a process may run.

    ## Source
    Each rank reads sched_getaffinity(2) of its main thread once its libraries are loaded, and tries in another thread
    which CPUs its control group permits. Open MPI, mpirun(1): one core a rank by default for up to two ranks, and
    `overload-allowed` puts several on one. Slurm, srun(1): `--cpus-per-task`, one by default, which all processes of a
    task share. GNU libgomp, GOMP_CPU_AFFINITY: the initial thread is bound to the first CPU of the list. A host whose
    control groups permit fewer CPUs than it has ranks is the matter of cpus-too-few, and hyper-threads count as CPUs.
    """
    for host, binding in bindings.items():
        for shared in shared_cpus(binding.by_rank):
            yield Finding(
                "{who} may run on CPU {cpus} alone, of {total} CPUs; expected a CPU for each of them",
                hosts=[host],
                who=describe_ranks(run, shared.ranks),
                ranks=list(shared.ranks),
                total=shared.permitted,
                cpus=sorted(shared.cpus),
            )
