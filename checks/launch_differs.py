import shlex
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from doctor import ERROR, Finding, PerHost, Skip, check, filled
from doctor.analysis.majority import split
from doctor.engine.addresses import means_own_host
from doctor.facts.host_variables import StartupVariables
from doctor.facts.job_paths import JobProgram
from doctor.facts.names import is_address, normalize_host
from doctor.job import LaunchConfig
from doctor.job.variables import EQUAL_EVERYWHERE, JOB_WIDE, comparable

IN_ENVIRONMENT = (
    "Set {0} once, where the job is launched, and pass it on to all hosts: a line in one host's ~/.bashrc, or an "
    "`export` that only the first host runs, overrides it there. On {1}: `grep -n {0} ~/.bashrc ~/.profile "
    "/etc/environment /etc/profile.d/*.sh` shows the line: take it out."
)
IN_FILES = (
    "A file of NCCL sets {0} on some hosts, and counts where the environment does not set it. On {1}: `grep -n '^{0}=' "
    "~/.nccl.conf /etc/nccl.conf $NCCL_CONF_FILE`. Write the same line on all hosts, or take it out: "
    "`sed -i '/^{0}=/d' /etc/nccl.conf`."
)
PACKAGE = "/__init__.py"
TENSORS = ", tensors "
HIDDEN = "Where the file of {0}, {1}, is right, on each host that has the folder beside it: `mv {2} {2}.unused`."


ADVISORY = ("shells", "programs")


@check(severity=ERROR, area="ranks", advisory=ADVISORY)
def launch_differs(
    launch: LaunchConfig, shells: PerHost[StartupVariables] | None, programs: PerHost[JobProgram] | None
) -> Iterator[Finding]:
    """All hosts have the same program, data, rendezvous address, number of ranks, and settings that ranks must share.

    ## Why it matters
    - Variables: ranks with another MASTER_ADDR or MASTER_PORT wait for a store that no rank opens; with another
      WORLD_SIZE the store waits for ranks that do not exist. Ranks with another NCCL_ALGO, NCCL_PROTO or
      HCCL_OP_EXPANSION_MODE run another algorithm, and each waits for a message that no other sends. With
      TORCH_DISTRIBUTED_DEBUG=DETAIL, torch makes a second group that compares each collective, and a rank waits in it
      for others that never join. Either way the job hangs until a timeout of minutes.
    - Files: ranks whose program, or a module beside it, is another one may make other groups, or a model of another
      shape. A folder on one host may hide the module of its name. Ranks that read other data or another checkpoint
      train something else.

    ## What to do
    {remedy}

    ## Source
    PyTorch, environment variable initialization (MASTER_ADDR, MASTER_PORT, WORLD_SIZE), and
    torch/distributed/distributed_c10d.py (_create_process_group_wrapper); MindSpore documentation, dynamic cluster
    (MS_SCHED_HOST, MS_SCHED_PORT, MS_WORKER_NUM); NCCL documentation, environment variables (NCCL_ALGO and NCCL_PROTO
    must be equal on all ranks), and its issue 969; HCCL documentation, the variables of algorithm, expansion and
    transport. Only `doctor merge` has the environment of each host's job: it cannot be read over SSH; the files of NCCL
    can, and the variables of communication that a host's shell sets for torchrun, mpirun or pdsh outside of a
    scheduler, where the shell that runs doctor does not set them. A program and the modules beside it
    are compared without comments and empty lines; it is a warning, as some lines matter to no rank. So is a file that
    the launch line names as data, of another size than on most hosts; an error where it is a checkpoint with other
    tensors that each rank loads. What a launch line computes is seen where a shell
    on each host does it: bash(1), HOSTNAME and RANDOM. On the master itself the address may be localhost, as the
    PyTorch operator of Kubernetes sets it.
    """
    for name, source in launch.differing.items():
        yield Finding(
            "{variable} is {observed}, which each of the {number} hosts computes for itself",
            case="Variables",
            variable=name,
            observed=source,
            number=launch.nodes,
            expected="one value for all hosts",
            remedy="Compute it once in the job script, before the line that starts the hosts, and export it: `export "
            'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)` under Slurm. The shell on the '
            "hosts uses that variable.",
        )
    places = launch.problems_of("apart")
    for _, _, observed, lines, _ in places:
        yield Finding(
            "lines {lines} start the hosts of one job, which meet at {observed}",
            case="Variables",
            lines=lines,
            observed=observed,
            expected="one address and one port",
            remedy="Give all of these lines the address of the host with number 0, and one port.",
        )
    if launch.differing or places:
        return
    hosts: Mapping[str, JobProgram] = programs or {}
    texts = [(host, path, text) for host, own in hosts.items() for path, text in sorted(own.texts.items()) if text]
    by_module: dict[str, dict[str, tuple[str, str]]] = defaultdict(dict)
    for host, path, text in texts:  # `import model` takes the folder model, where that has an __init__.py
        by_module[path.replace(PACKAGE, ".py")][host] = path, text
    for _, codes in sorted(by_module.items()):
        is_loaded = all(hosts[host].each_rank_loads(path, launch.launch_line) for host, (path, _) in codes.items())
        yield from _programs(codes, is_loaded=is_loaded)
    environs = {host: launch.environ_of(host) for host in {**launch.env_by_host, **launch.files, **launch.shells}}
    if not launch.env_by_host and not any((*launch.files.values(), *launch.shells.values())):
        if sum(bool(own.texts) for own in hosts.values()) > 1:
            return
        raise Skip("only `doctor node` reads each host's own environment")
    set_by_files = {host: launch.set_by_files(host) for host in launch.files}
    for variable in (*JOB_WIDE, *EQUAL_EVERYWHERE):
        hosts_by_value: dict[str, list[str]] = defaultdict(list)
        for host, environ in environs.items():
            hosts_by_value[_normalized(variable, environ.get(variable, ""))].append(host)
        if variable.endswith(("_ADDR", "_HOST")):
            _drop_master(hosts_by_value)
        if len(hosts_by_value) > 1:
            in_files = {host for host, variables in set_by_files.items() if variable in variables}
            yield from _findings(variable, hosts_by_value, in_files)


def _programs(codes: Mapping[str, tuple[str, str]], *, is_loaded: bool) -> Iterator[Finding]:
    """The hosts whose file is not that of most; all of them at a tie. Data may be divided among hosts by design.

    ``codes``: path and content by host. ``is_loaded``: by each rank, so that other tensors do not fit the model.
    """
    parts = split(codes, codes.__getitem__)
    is_code = any(path.endswith(".py") for path, _ in codes.values())
    has_other_tensors = len({text.partition(TENSORS)[2] for _, text in codes.values()} - {""}) > 1
    if parts is None or not (is_code or 2 * len(parts.differing) < len(codes) or (is_loaded and has_other_tensors)):
        return
    holder = parts.norm
    path = codes[holder][0]
    hidden_by = {codes[host][0].replace(PACKAGE, "/") for host in parts.differing if codes[host][0] != path}
    if is_code and not path.endswith(PACKAGE) and hidden_by:
        yield Finding(
            "{folder} hides {path}, which {count} of {total} hosts import",
            hosts=[host for host in parts.differing if codes[host][0] != path],
            case="Files",
            folder=hidden_by.pop(),
            path=path,
            count=list(codes.values()).count(codes[holder]),
            total=len(codes),
            observed="a package of the same name",
            expected="the same program on all hosts",
            remedy=filled(HIDDEN, holder, path, shlex.quote(path.removesuffix(".py"))),
        ).as_warning()
        return
    yield Finding(
        "{path} differs: {count} of {total} hosts have the same one",
        hosts=parts.differing,
        case="Files",
        path=path,
        count=list(codes.values()).count(codes[holder]),
        total=len(codes),
        observed=filled("{0} versions", parts.kinds)
        if is_code
        else sorted({codes[host][1] for host in parts.differing}),
        expected="the same program on all hosts" if is_code else codes[holder][1],
        remedy=filled(
            "Where the file of {0} is right, on each other host: `rsync -a {1}:{2} {3}`.",
            holder,
            holder,
            *[shlex.quote(path)] * 2,
        ),
    ).as_warning(not (is_loaded and has_other_tensors))


def _normalized(variable: str, value: str) -> str:
    return normalize_host(value) if is_address(value) else comparable(variable, value).partition(".")[0]


def _drop_master(hosts_by_value: dict[str, list[str]]) -> None:
    """Leaves out the one host whose variable names itself as the master."""
    here = [value for value in hosts_by_value if means_own_host(value)]
    if len(here) == 1 and len(hosts_by_value[here[0]]) == 1:
        del hosts_by_value[here[0]]


def _findings(variable: str, hosts_by_value: Mapping[str, list[str]], in_files: Collection[str]) -> Iterator[Finding]:
    """``in_files``: the hosts where a file of NCCL sets the variable, and the environment does not."""
    most = max(len(hosts) for hosts in hosts_by_value.values())
    norms = [value for value, hosts in hosts_by_value.items() if len(hosts) == most]
    expected = norms[0] or "not set" if len(norms) == 1 else "the same everywhere; no majority shows which"
    for value, hosts in sorted(hosts_by_value.items()):
        is_in_files = bool(in_files) if not value else any(host in in_files for host in hosts)
        if len(norms) > 1 or value != norms[0]:
            yield Finding(
                "{variable} is {value}; expected {expected}",
                hosts=hosts,
                case="Variables",
                variable=variable,
                value=value or "not set",
                remedy=filled(IN_FILES if is_in_files else IN_ENVIRONMENT, variable, hosts[0]),
                observed=value or "not set",
                expected=expected,
            )
