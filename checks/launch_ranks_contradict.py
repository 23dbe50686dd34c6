from collections.abc import Iterator

from doctor import ERROR, Finding, check, filled
from doctor.job.training import NotGiven, TrainingLaunch, View, apply_rules


@check(severity=ERROR, area="training")
def launch_ranks_contradict(training: TrainingLaunch) -> Iterator[Finding]:
    """The launcher and the configuration name the same hosts and the same ranks on each.

    ## Why it matters
    Lightning stops where its devices and num_nodes are not those of torchrun or Slurm. msrun waits for workers that
    nobody starts, or workers beyond its number fail to register. Accelerate starts num_processes // num_machines
    processes on each machine: what is left over is waited for.

    ## What to do
    Change {where}, or the launch, so that both say the same.

    ## Source
    Lightning, torchelastic.py and slurm.py, `validate_settings`
    (https://github.com/Lightning-AI/pytorch-lightning/tree/master/src/lightning/fabric/plugins/environments);
    MindSpore, msrun, `--worker_num` (https://www.mindspore.cn/tutorials/en/stable/parallel/msrun_launcher.html);
    Accelerate, utils/launch.py, `prepare_multi_gpu_env`
    (https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/launch.py).
    """
    yield from apply_rules(training, _lightning_hosts, _lightning_devices, _workers, _machines)


def _lightning_hosts(view: View) -> Iterator[Finding]:
    yield from _compare(view, "machines", "nodes", "hosts")


def _lightning_devices(view: View) -> Iterator[Finding]:
    yield from _compare(view, "devices", "ranks_per_node", "ranks on each host")


def _compare(view: View, name: str, counterpart: str, noun: str) -> Iterator[Finding]:
    if view.framework not in ("lightning", "nemo") or view.text("launcher") not in ("torchrun", "srun"):
        raise NotGiven(name)
    if view.need(name).value in (-1, "-1"):
        raise NotGiven(name)
    number, launched = view.number(name), view.number(counterpart)
    if number != launched:
        yield Finding(
            "{where} has {number} {noun}, and the launch {launched}",
            where=view.place(name),
            number=number,
            noun=noun,
            launched=launched,
            observed=view.listed(name),
            expected=view.listed(counterpart),
        )


def _workers(view: View) -> Iterator[Finding]:
    total, local = view.number("workers"), view.number("local_workers", 8)
    if total % local:
        yield Finding(
            "msrun at {where} starts {local} workers on each host, and waits for {total}",
            where=view.place("workers"),
            local=local,
            total=total,
            observed=view.listed("workers", "local_workers"),
            expected="a multiple of --local_worker_num as --worker_num",
        )


def _machines(view: View) -> Iterator[Finding]:
    if view.framework != "accelerate":
        raise NotGiven("machines")
    total, machines = view.number("world_size"), view.number("nodes")
    if total % machines:
        yield Finding(
            "{total} processes at {where} cannot be divided among {machines} machines",
            where=view.place("world_size"),
            total=total,
            machines=machines,
            observed=view.listed("world_size", "nodes"),
            expected=filled("num_processes of all machines together: a multiple of {0}", machines),
        )
