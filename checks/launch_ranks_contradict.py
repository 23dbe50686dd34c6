from collections.abc import Iterator

from doctor import ERROR, Finding, check, filled
from doctor.engine.addresses import means_own_host
from doctor.job.job_size import ONE_ON_EACH_HOST
from doctor.job.training import (
    OF_CONTAINER,
    NotDecided,
    NotGiven,
    TrainingJob,
    TrainingLaunch,
    TrainingScript,
    View,
    apply_rules,
    correction,
)

_SPREAD = "--map-by ppr:1:node"
_MOST_SLOTS = "at most {0}, or --oversubscribe"


@check(severity=ERROR, area="training")
def launch_ranks_contradict(training: TrainingLaunch) -> Iterator[Finding]:
    """The launcher and the configuration name the same hosts and the same ranks on each.

    ## Why it matters
    Lightning stops where its devices and num_nodes are not those of torchrun or Slurm. msrun waits for workers that
    no node starts, or workers beyond its number fail to register. Accelerate starts num_processes // num_machines
    processes on each machine. What is left over is waited for. A machine_rank that does not exist, and a
    main_process_ip that leads every machine to itself, are waited for as well. A world_size that stands in the
    program is another one than that of the launch. DeepSpeed starts as many processes as --num_gpus says; the
    host's slots do not count, and it stops at an entry of its hostfile that it cannot read. Open MPI refuses more
    ranks than its hostfile has slots, and without one more than the host has cores. It fills the slots of the first
    host before it takes the next: what starts once on each host needs `--map-by ppr:1:node`. Ranks beyond the
    GPUs that the scheduler gives have none of their own: a warning, as ranks may share one on purpose. It is an error
    in a container that has no more, where the program asks for NCCL or HCCL: they take one process on each device.
    verl, OpenRLHF and vLLM wait for the devices that their sizes need, where the hosts of Ray have fewer.

    ## What to do
    {edit} {where} has {observed}, and needs {expected}. Where {where} is right, correct the launch line instead.

    ## Source
    Lightning, torchelastic.py and slurm.py, `validate_settings`
    (https://github.com/Lightning-AI/pytorch-lightning/tree/master/src/lightning/fabric/plugins/environments);
    MindSpore, msrun, `--worker_num` (https://www.mindspore.cn/tutorials/en/stable/parallel/msrun_launcher.html);
    Accelerate, utils/launch.py, `prepare_multi_gpu_env`
    (https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/launch.py); PyTorch, init_process_group,
    `world_size`; DeepSpeed, launcher/runner.py, `--num_gpus`
    (https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/launcher/runner.py); Open MPI, mpirun(1), "not
    enough slots available"; sbatch(1), --gpus-per-node and --gres.
    """
    rules = (
        _lightning_hosts,
        _lightning_devices,
        _workers,
        _machines,
        _machine_rank,
        _main_address,
        _slots,
        _bad_entry,
        _all_slots,
        _first_slots,
        _places,
        _gpus,
    )
    yield from apply_rules(training, *rules, script_rules=(_world_size,))


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
            "{where} is for {number} {noun}, and the launch is for {launched}",
            where=view.place(name),
            number=number,
            noun=noun,
            launched=launched,
            observed=view.listed(name),
            expected=view.listed(counterpart),
            edit="",
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
            edit="",
        )


def _machines(view: View) -> Iterator[Finding]:
    if "accelerate" not in (view.framework, view.text("launcher")):
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
            edit="",
        )


def _machine_rank(view: View) -> Iterator[Finding]:
    if view.framework != "accelerate":
        raise NotGiven("machine_rank")
    setting, machines = view.need("machine_rank"), view.number("nodes")
    if isinstance(setting.value, int) and not 0 <= setting.value < machines:
        yield Finding(
            "machine_rank at {where} is {number}, of {machines} machines",
            where=view.place("machine_rank"),
            number=setting.value,
            machines=machines,
            observed=view.listed("machine_rank"),
            expected=filled("from 0 to {0}", machines - 1),
            edit="",
        )


def _main_address(view: View) -> Iterator[Finding]:
    if view.framework != "accelerate" or view.number("nodes") < 2:
        raise NotGiven("main_address")
    if means_own_host(view.text("main_address") or "-"):
        yield Finding(
            "main_process_ip at {where} leads every machine to itself",
            where=view.place("main_address"),
            observed=view.listed("main_address"),
            expected="an address or name of machine 0 that the others reach",
            edit="",
        )


def _slots(view: View) -> Iterator[Finding]:
    if view.text("launcher") != "deepspeed":
        raise NotGiven("slots")
    if view.has("listed_hosts"):
        yield Finding(
            "deepspeed is to start on {number} hosts, and the hostfile at {where} names {listed}",
            number=view.number("nodes"),
            where=view.place("listed_hosts"),
            listed=view.number("listed_hosts"),
            observed=view.listed("nodes"),
            expected=filled("at most {0}, as it takes no others", view.number("listed_hosts")),
            edit="",
        ).as_warning()
    slots, ranks = view.number("slots"), view.number("ranks_per_node")
    if ranks > slots:
        yield Finding(
            "the launch has {number} ranks on each host, and the hostfile at {where} {slots} slots",
            where=view.place("slots"),
            number=ranks,
            slots=slots,
            observed=view.listed("ranks_per_node"),
            expected=filled("at most {0}", slots),
            edit="",
        )


_IN_DEEPSPEED = "`<host> slots=<number>` in each line of the hostfile, each host once, and no other host in --include"
_IN_COLOSSALAI = "each host once in the hostfile, and no other host in --include and --exclude"


def _bad_entry(view: View) -> Iterator[Finding]:
    if not view.has("bad_entry"):
        raise NotGiven("bad_entry")
    yield Finding(
        "{launcher} refuses what {where} has",
        launcher=view.text("launcher"),
        where=view.place("bad_entry"),
        observed=view.listed("bad_entry"),
        expected=_IN_DEEPSPEED if view.text("launcher") == "deepspeed" else _IN_COLOSSALAI,
        edit="",
    )


def _all_slots(view: View) -> Iterator[Finding]:
    is_server = view.framework in ("vllm", "sglang") and view.text("launcher") not in ONE_ON_EACH_HOST
    by_ray = is_server or view.framework in ("verl", "openrlhf")
    if view.text("launcher") not in ("openmpi", "horovodrun") and not by_ray:
        raise NotGiven("all_slots")
    slots = view.number("all_slots")
    ranks = view.number("tensor", 1) * view.number("pipeline", 1) if is_server else view.number("world_size")
    if ranks > slots and by_ray:
        yield Finding(
            "{launcher} waits for {number} devices, and the hosts at {where} have {slots}",
            launcher=view.framework,
            number=ranks,
            where=view.place("all_slots"),
            slots=slots,
            observed=view.listed("tensor", "pipeline") if is_server else view.listed("nodes", "ranks_per_node"),
            expected=filled("at most {0}", slots),
            edit="",
        )
    elif ranks > slots:
        yield Finding(
            "{launcher} starts {number} ranks, and {where} has {slots} slots",
            launcher=view.text("launcher").replace("openmpi", "mpirun"),
            number=ranks,
            where=view.place("all_slots"),
            slots=slots,
            observed=view.listed("world_size"),
            expected=filled("at most {0}" if view.text("launcher") == "horovodrun" else _MOST_SLOTS, slots),
            edit=correction(view.place("world_size"), rf"( -np? ){ranks}\b", rf"\1{slots}"),
        ).as_warning(view.need("all_slots").option == "tasks")  # Hydra's mpirun puts more of them on each host


def _first_slots(view: View) -> Iterator[Finding]:
    slots, tasks = view.number("first_slots"), view.number("outer_tasks")
    if min(slots, tasks) > 1:
        yield Finding(
            "mpirun starts {launcher} {number} times on its first host, which has {slots} slots at {hostfile}",
            launcher=view.text("launcher"),
            number=min(slots, tasks),
            slots=slots,
            hostfile=view.place("first_slots"),
            where=view.place("outer_tasks"),
            observed=view.listed("outer_tasks"),
            expected=filled("once on each host: `{0}`", _SPREAD),
            edit=correction(view.place("outer_tasks"), rf"( -np? {tasks})\b", rf"\1 {_SPREAD}"),
        )


def _places(view: View) -> Iterator[Finding]:
    """Open MPI refuses more ranks than places (measured with 4.1.4); Hydra and srun put more of them on each host."""
    launcher, launch = view.text("launcher"), view.job.launch
    sizes = [launch[name].value for name in ("nodes", "ranks_per_node", "world_size") if name in launch]
    numbers = [size for size in sizes if isinstance(size, int)]
    if launcher not in ("openmpi", "hydra", "srun") or len(numbers) < 3:
        raise NotGiven("ranks_per_node")
    hosts, each, ranks = numbers
    if ranks > hosts * each:
        yield Finding(
            "the launch has {number} ranks, and {local} on each of {machines} hosts are {places}",
            where=view.place("world_size"),
            number=ranks,
            local=each,
            machines=hosts,
            places=hosts * each,
            observed=view.listed("world_size", "nodes", "ranks_per_node"),
            expected=filled("at most {0} ranks, or more on each host", hosts * each),
            edit="",
        ).as_warning(launcher != "openmpi")


def _gpus(view: View) -> Iterator[Finding]:
    if view.framework != "verl" and view.text("launcher") not in (*ONE_ON_EACH_HOST, "deepspeed"):
        raise NotGiven("gpus")
    gpus, ranks = view.number("gpus"), view.number("ranks_per_node")
    if ranks > gpus:
        yield Finding(
            "the launch starts {number} ranks on each host, and {where} requests {gpus} devices of it",
            number=ranks,
            where=view.place("gpus"),
            gpus=gpus,
            observed=view.listed("ranks_per_node"),
            expected=filled("at most {0}", gpus),
            edit="",
        ).as_warning(not _needs_one_each(view))


def _needs_one_each(view: View) -> bool:
    """The container has no more devices, and the program's library takes one process on each."""
    backends = [mark.text for script in view.job.scripts for mark in script.all("init")]
    is_bound = view.need("gpus").option == OF_CONTAINER
    return is_bound and any(name in ("nccl", "hccl") or name.endswith((":nccl", ":hccl")) for name in backends)


def _world_size(job: TrainingJob, script: TrainingScript) -> Iterator[Finding]:
    marks = script.all("fixed_world_size")
    if len(marks) != 1 or len(script.all("init")) != 1 or int(marks[0].text) < 2:
        raise NotGiven("world_size")  # a branch for one process may have another
    launched = job.launch.get("world_size")
    if launched is None:
        raise NotGiven("world_size")
    if not isinstance(launched.value, int):
        raise NotDecided(filled("{0}, and {1} waits for {2} ranks", launched, marks[0].where, marks[0].text))
    if int(marks[0].text) != launched.value:
        yield Finding(
            "init_process_group at {where} waits for {number} ranks, and the launch starts {launched}",
            where=marks[0].where,
            number=int(marks[0].text),
            launched=launched.value,
            observed=f"world_size={marks[0].text}",
            expected=str(launched),
            edit=correction(marks[0].where, f"world_size={marks[0].text}", f"world_size={launched.value}"),
        )
