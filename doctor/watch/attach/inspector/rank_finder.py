"""Which processes of a host are ranks: by their environment, as it is now, by devices, and by their connections."""

import os
import pwd
import re
import time

from doctor.remote.runtime.rank_variables import RANK_VARIABLES, is_no_rank
from doctor.remote.runtime.reading import link_at, read_text
from doctor.smoke.programs.agent.procfs import ancestors, open_files, process_status
from doctor.smoke.programs.agent.system_calls import memory_maps
from doctor.watch.attach.inspector.connected import find_groups, user_of, uses_library
from doctor.watch.attach.inspector.live_environment import live_environ
from doctor.watch.attach.inspector.open_requests import asked_times, left_requests

JOB_VARIABLES = (
    "MASTER_ADDR", "MASTER_PORT", "MS_SCHED_PORT", "SLURM_JOB_ID", "SLURM_STEP_ID", "TORCHELASTIC_RUN_ID", "RAY_JOB_ID"
)  # fmt: skip
OTHER_VARIABLES = (
    "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCH_FR_DUMP_TEMP_FILE",
    "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID", "CUDA_VISIBLE_DEVICES",
    "ASCEND_RT_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
)  # fmt: skip
SHARED_FAMILIES = ("NCCL_", "HCCL_", "GLOO_", "TORCH_DISTRIBUTED_DEBUG", "WORLD_SIZE")  # compared over ranks
MOST_RANKS = 1024
MOMENTS = 5
MAX_ENVIRON = 1 << 20


def read_environ(pid):
    """The variables with which a process was started; empty where they cannot be read."""
    pairs = (entry.partition("=") for entry in read_text("/proc/%d/environ" % pid, MAX_ENVIRON).split("\0"))
    return dict((key, value) for key, _, value in pairs if key)


def named_rank(environ):
    """(rank, number of ranks or 0, which variable) that an environment names; None where it names none."""
    for place, (rank, size, _) in enumerate(() if is_no_rank(environ) else RANK_VARIABLES):
        text = environ.get(rank, "")
        if re.match("[0-9]{1,7}$", text):
            total = environ.get(size, "")
            return int(text), int(total) if re.match("[0-9]{1,7}$", total) else 0, place
    return None


def argument_rank(words):
    """(rank, number of ranks or 0, place) that a command line names; None where it names none."""
    text = " ".join(words)
    rank = re.search(r"(?:^| )--(?:global[-_])?rank[= ]([0-9]{1,7})(?: |$)", text)
    total = re.search(r"(?:^| )--world[-_]size[= ]([0-9]{1,7})(?: |$)", text)
    return (int(rank.group(1)), int(total.group(1)) if total else 0, len(RANK_VARIABLES)) if rank else None


def command_words(pid):
    """The command line of a process, cut."""
    return [word[:200] for word in read_text("/proc/%d/cmdline" % pid, 8192).split("\0")[:24] if word]


def task_of(words):
    """The call that a worker of Ray is in, by its title, as ``Worker.fit``; empty: none, or it is no such worker."""
    match = re.match(r"ray::(\w[\w<>.]*\.\w+)(?:\(\))? *$", "".join(words[:1]))
    return match.group(1) if match else ""


def is_python(pid, command):
    """Whether a process is a Python interpreter, or is named as one."""
    name = link_at("/proc/%d/exe" % pid) or "".join(command[:1])
    return bool(re.match(r"python|pypy|pt_main", os.path.basename(name)))


def held_devices(pid):
    """The accelerators that a process has open."""
    return sorted(set(name for name in open_files(pid, 4096) if re.match(r"/dev/(davinci|nvidia)[0-9]+$", name)))


def candidates(pids):
    """By pid: parent, environment and rank of all processes that may be ranks; ``pids`` limits them to these."""
    by_pid = {}
    own_pid = os.getpid()
    names = pids or [int(name) for name in os.listdir("/proc") if name.isdigit()]
    for pid in names:
        status = process_status(pid)
        if not status or pid == own_pid or status[0] in "ZX":
            continue
        environ, maps, command = read_environ(pid), memory_maps(pid), command_words(pid)
        distributed = uses_library(maps)
        if distributed:  # a program may have named its ranks itself, as mp.spawn's and Ray's do
            environ.update(live_environ(pid, maps) or {})
        rank = named_rank(environ) or (argument_rank(command) if distributed else None)
        if command and (rank or pids or distributed or held_devices(pid)):
            entry = {"pid": pid, "parent": status[1], "environ": environ, "rank": rank, "words": command}
            by_pid[pid] = dict(entry, maps=maps, group=0, links=[], stores=[])
    return by_pid


def set_groups(by_pid, keeps_all):
    """Sets which processes are connected, and leaves out each that is no rank, has no device and no connection, and
    leaves no request of another process unanswered.

    ``keeps_all``: none is left out, as the user asked for these.
    """
    ranked = set(pid for pid, entry in by_pid.items() if entry["rank"])
    for _ in range(MOMENTS):
        groups, links, stores = find_groups(dict((pid, entry["maps"]) for pid, entry in by_pid.items()))
        if ranked or len(by_pid) < 2 or len(groups) < len(by_pid) or any(links.values()):
            break
        time.sleep(0.1)  # a program that connects for each call anew is not connected at every moment
    times = asked_times()
    for first, members in with_never_joined(groups, by_pid).items():
        for pid in members:
            entry = by_pid[pid]
            entry["links"], entry["stores"] = links[pid], stores.get(pid, [])
            together = len(members) > 1 or links[pid]
            entry["group"] = first if together else 0
            # Beside the ranks of a job a connected process has another role.
            is_beside = not entry["rank"] and not held_devices(pid) and (not together or ranked.intersection(members))
            if is_beside and not keeps_all and not left_requests(pid, times):
                del by_pid[pid]


def with_never_joined(groups, by_pid):
    """The groups, each with the lone processes that have not joined it: of the same parent and, but for numbers, the
    same command line. Processes that name a rank are known without that.
    """
    bare = dict((first, [by_pid[pid] for pid in pids]) for first, pids in groups.items())
    bare = dict((first, group) for first, group in bare.items() if not any(entry["rank"] for entry in group))
    starts = dict((first, set((entry["parent"], re.sub("[0-9]+", "", " ".join(entry["words"]))) for entry in group))
                  for first, group in bare.items())  # fmt: skip
    joined = [first for first in bare if len(groups[first]) > 1 and len(starts[first]) == 1]
    places = dict((first, [other for other in joined if starts[other] == starts[first]]) for first in bare)
    late = dict((first, places[first][0]) for first in bare if len(groups[first]) == 1 and len(places[first]) == 1)
    late = dict((pid, first) for pid, first in late.items() if starts_programs(by_pid[pid]["parent"]))
    return dict((first, pids + sorted(pid for pid in late if late[pid] == first))
                for first, pids in groups.items() if first not in late)  # fmt: skip


def starts_programs(pid):
    """Whether a process is a script of its own; the first process of a host takes in those of all others."""
    return pid > 1 or bool(re.match(r"(?:ba|da)?sh$|python", os.path.basename("".join(command_words(pid)[:1]))))


def hidden_pythons(pids):
    """By user: how many Python processes of other users there are whose environment may not be read."""
    counts = {}
    for pid in pids or [int(name) for name in os.listdir("/proc") if name.isdigit()]:
        try:
            with open("/proc/%d/environ" % pid, "rb") as file:
                file.read(1)
        except PermissionError:
            if is_python(pid, command_words(pid)):
                name = owner_name(pid)
                counts[name] = counts.get(name, 0) + 1
        except OSError:
            continue
    return counts


def owner_name(pid):
    """The user whose process it is."""
    uid = user_of(pid)
    try:
        return "" if uid < 0 else pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def same_rank(entry, other):
    """Whether a process and one below it carry the rank of one and the same job. Without one, who is connected is its
    own. A process of `multiprocessing` with a group of its own, as for checkpoints, has another port.
    """
    if entry["rank"] is None and other["rank"] is None and other["group"]:
        return False
    is_part = other["words"] == entry["words"] or "--multiprocessing-fork" in other["words"]
    return entry["rank"] == other["rank"] and (is_part or job_of(entry["environ"]) == job_of(other["environ"]))


def job_of(environ):
    """What the processes of a job have in common."""
    return dict((name, environ[name][:200]) for name in JOB_VARIABLES if name in environ)


def shown_variables(environ):
    """What of a rank's variables goes back: its number on the host, where it leaves dumps, how it communicates."""
    names = [name for name in sorted(environ) if name in OTHER_VARIABLES or name.startswith(SHARED_FAMILIES)]
    return dict((name, environ[name][:300]) for name in names[:256])


def find_ranks(pids):
    """The processes that are ranks, each as a dictionary, by pid. Loader workers and wrappers of a rank are none."""
    by_pid = candidates(pids)
    set_groups(by_pid, bool(pids))
    if pids:
        return [by_pid[pid] for pid in sorted(by_pid) if not is_launcher(by_pid[pid]["words"])]
    above = dict((pid, [parent for parent in ancestors(pid) if parent in by_pid]) for pid in by_pid)
    pythons = dict((pid, is_python(pid, entry["words"])) for pid, entry in by_pid.items())
    wrappers, workers = set(), set()
    named = [pid for pid in by_pid if pythons[pid] and by_pid[pid]["rank"]]
    for pid, entry in by_pid.items():
        if entry["rank"] and not pythons[pid] and any(same_rank(by_pid[other], entry) for other in named):
            workers.add(pid)  # the process that started it has ended
        if starts_ranks(entry["words"]):
            wrappers.update(above[pid])  # a batch script, which Slurm gives the number of its first rank
        for parent in above[pid]:
            if same_rank(by_pid[parent], entry):
                # A shell around the rank, or the rank around its loader worker.
                if pythons[parent] or not pythons[pid]:
                    workers.add(pid)
                else:
                    wrappers.add(parent)
            elif entry["rank"] and by_pid[parent]["rank"]:
                wrappers.add(parent)  # torchrun under srun: it carries the rank of the step, not of its workers
    ranks = [entry for pid, entry in sorted(by_pid.items()) if pid not in wrappers and pid not in workers]
    return [entry for entry in ranks if not is_launcher(entry["words"])][:MOST_RANKS]


def asked_ranks(pids, ranks):
    """By each process that the user names: the ranks that are meant. Of a launcher, those below it.

    ``ranks``: all of this host.
    """
    parents = dict((entry["pid"], ancestors(entry["pid"])) for entry in ranks)
    below = dict((pid, [rank for rank in sorted(parents) if pid in parents[rank]]) for pid in pids)
    return dict((pid, [pid] if pid in parents or not below[pid] else below[pid]) for pid in pids)


def starts_ranks(command):
    """Whether a command is that of a launcher."""
    return program_name(command) in (
        "srun", "mpirun", "mpiexec", "prun", "torchrun", "torch.distributed.run", "torch.distributed.launch", "msrun"
    )  # fmt: skip


def program_name(command):
    """What a command runs: of an interpreter its module or script. Its arguments may hold any word."""
    arguments = command[:1] + [word for word in command[1:] if not re.match("-[^m]", word)]
    if not re.match(r"python|pypy|pt_main", os.path.basename(arguments[0])) or len(arguments) < 2:
        return os.path.basename(arguments[0])
    return "".join(arguments[2:3]) if arguments[1] == "-m" else os.path.basename(arguments[1])


def is_launcher(command):
    """Whether a command only starts ranks, or helps them."""
    name = os.path.basename(command[0])
    return (
        starts_ranks(command)
        or name in ("orted", "prted", "slurmstepd", "sshd", "hydra_pmi_proxy")
        or bool(re.search(r"multiprocessing\.resource_tracker\b", " ".join(command[:6])))
    )
