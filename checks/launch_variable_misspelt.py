import re
from collections.abc import Iterator

from doctor import WARNING, Finding, check, filled
from doctor.job import LaunchConfig, misspelt
from doctor.job.variables import relevant

OF_RECIPES = ("NPROC_PER_NODE", "FORCE_TORCHRUN")
"""Variables that ms-swift and LLaMA-Factory turn into a launch of torchrun."""
PLAIN = re.compile(r"[\w.,:/+-]{1,80}", re.ASCII)
RECIPES = re.compile(r"(?:^|[\s/])(?:swift|megatron|llamafactory-cli|lmf)\s")


@check(severity=WARNING, area="ranks")
def launch_variable_misspelt(launch: LaunchConfig) -> Iterator[Finding]:
    """No variable of the job has a name that is one letter, or one word, away from one that a library reads.

    ## Why it matters
    A library does not report a variable whose name it does not know: the job runs with the default, and the setting
    seems to have no effect. With NCCL_SOCKET_IFNAM the job may take a network interface that leads nowhere.

    ## What to do
    {remedy}

    Write {expected} instead of {variable} where the job is launched: `grep -rn {variable} .` in the folder of the job
    prints the line. If the name is meant as it is, accept the finding: `doctor explain waivers`.

    ## Source
    The names are those of NCCL, HCCL, Gloo, PyTorch, torch_npu, MindSpore and OpenMP, of their sources and documents.
    One letter too many, too few or different, or two letters exchanged, is taken for a slip, unless the right name is
    set, too; so are other forms of a word (IDX, CONN, INTERFACE), another order, and a word left out (GLOO_IFNAME). A
    name of plain words alone, such as NCCL_TIMEOUT or ASCEND_HOME, is taken for a script's own.
    """
    names = {**launch.env, **relevant(launch.unresolved)}
    hosts_by_name: dict[tuple[str, str], list[str]] = {pair: [] for pair in misspelt(names).items()}
    if not RECIPES.search(launch.launch_line):  # a name of the script's own
        hosts_by_name = {pair: hosts for pair, hosts in hosts_by_name.items() if pair[1] not in OF_RECIPES}
    for host in {**launch.files, **launch.env_by_host}:
        of_host = {*launch.files.get(host, {}), *launch.env_by_host.get(host, {})}
        for name, intended in misspelt(launch.environ_of(host)).items():
            if name in of_host:
                hosts_by_name.setdefault((name, intended), []).append(host)
    set_so = {(f"${intended}", f"${name}") for name, intended in hosts_by_name}
    pairs = [(problem.option, problem.expected) for problem in launch.problems_of("misspelt")]
    for name, intended in [pair for pair in pairs if pair not in set_so]:
        by_slurm = "nothing sets {variable}; Slurm sets {expected}" if name.startswith("$SLURM_") else ""
        template = by_slurm or "nothing sets {variable}; the script sets {expected}"
        yield Finding(template, variable=name, observed=name, expected=intended)
    for (name, intended), hosts in sorted(hosts_by_name.items()):
        yield Finding(
            "no library reads {variable}; the name is {expected}",
            hosts=hosts,
            variable=name,
            observed=name,
            expected=intended,
            remedy=_remedy(launch, hosts, name, intended),
        )


def _remedy(launch: LaunchConfig, hosts: list[str], name: str, intended: str) -> str:
    """The line in its right form; empty where its value is unknown, or no plain word."""
    value = launch.env.get(name, "")
    of_files = [host for host in hosts if name in launch.files.get(host, {})]
    if not PLAIN.fullmatch(name) or not (of_files or PLAIN.fullmatch(value)):
        return ""
    if of_files:
        return filled(
            "On {2}: `sed -i.bak 's/{0}/{1}/' $(grep -ls {0} ~/.nccl.conf /etc/nccl.conf)`.",
            name,
            intended,
            ", ".join(of_files[:4]),
        )
    return filled(
        "In the job's script, in place of {0}: `export {1}={2}`. `grep -rn {0} .` in the folder of the job prints the "
        "line. If the name is meant as it is, accept the finding: `doctor explain waivers`.",
        name,
        intended,
        value,
    )
