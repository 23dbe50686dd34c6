"""``mpirun``, ``mpiexec`` and ``orterun`` of Open MPI 4 and 5, and ``prterun``.

Source: Open MPI, mpirun(1), versions 4.1 and 5.0 (https://docs.open-mpi.org/en/v5.0.x/man-openmpi/man1/mpirun.1.html,
https://www.open-mpi.org/doc/v4.1/man1/mpirun.1.php).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from doctor.job.launch_line.launcher import Started, host_list
from doctor.job.launch_line.model import LaunchCall
from doctor.job.launch_line.options import Options, option_table, split_options
from doctor.job.shell.word import Word

NAMES = ("mpirun", "mpiexec", "orterun", "mpirun.openmpi", "mpiexec.openmpi", "prterun", "prun")

TABLE = option_table(
    """
    am app bind-to c/np n/np np cf/cartofile cpu-list cpu-set cpus-per-proc cpus-per-rank debugger default-hostfile
    H/host host hnp hostfile machinefile launch-agent map-by max-restarts max-vm-size N/npernode npernode npersocket
    ompi-server output-filename path personality ppr prefix preload-files rank-by report-events report-pid report-uri
    rf/rankfile rankfile stdin timeout tune wd/wdir wdir x xml-file xterm dvm-uri output runtime-options display pset
    add-host add-hostfile cwd/wdir set-cwd stream-buffering pmixmca-params keepalive exec-agent rtos debug-verbose
    """,
    """
    allow-run-as-root bind-to-core bind-to-socket bycore bynode byslot continuous d/debug-devel debug-devel debug
    debug-daemons debug-daemons-file disable-recovery display-allocation display-devel-allocation display-devel-map
    display-diffable-map display-map display-topo do-not-launch do-not-resolve dvm enable-instant-on-support
    enable-recovery fwd-mpirun-port get-stack-traces h/help help index-argv-by-rank leave-session-attached
    merge-stderr-to-stdout nolocal nooversubscribe noprefix novm output-proctable oversubscribe pernode q/quiet quiet
    report-bindings report-child-jobs-separately report-state-on-timeout s/preload-binary preload-binary
    set-cwd-to-session-dir show-progress tag-output timestamp-output tv use-hwthread-cpus use-regexp v/verbose verbose
    V/version version xml no-ready-msg forward-signals
    """,
    "mca gmca omca prtemca pmixmca gpmixmca",
    abbreviates=False,
    joins_letters=False,
)


def read(command: str, argv: tuple[Word, ...], environ: Mapping[str, str]) -> Started:
    """See `doctor.job.launch_line.launcher.ReadCall`."""
    options = split_options(command, argv, TABLE)
    exported, passed = _exports(options)
    hosts = _hosts(options)
    first, ranks = _several_programs(options, options.number("np", least=1))
    per_node = 1 if "pernode" in options else options.number("npernode", least=1, most=65536)
    per_node = per_node or _per_resource(options)
    call = LaunchCall(
        launcher="openmpi",
        command=command,
        nodes=len(hosts) if hosts and not any("[" in host for host in hosts) else None,
        ranks=ranks,
        ranks_per_node=per_node,
        hosts=hosts,
        hostfile=options.text("hostfile", "machinefile", "default-hostfile"),
        environ=exported,
        passed=passed,
        options=options.as_texts(),
        unresolved=options.unresolved,
        problems=tuple(options.problems),
    )
    return Started(call, first)


def _hosts(options: Options) -> tuple[str, ...]:
    """Each host once: ``-H a:4,b:4`` and ``-H a,a,b``."""
    options.text("host")  # notes what is unresolved
    text = ",".join(word.text for word in options.texts("host") if not word.unresolved)
    return tuple(dict.fromkeys(re.sub(r":[0-9]{1,6}$", "", host) for host in host_list(text)))


def _exports(options: Options) -> tuple[dict[str, str], tuple[str, ...]]:
    """``-x NAME=value`` and ``-x NAME``; also as a list in ``--mca mca_base_env_list``."""
    exported: dict[str, str] = {}
    passed: list[str] = []
    for word in options.texts("x"):
        name, equals, value = word.text.partition("=")
        if word.unresolved and equals:
            options.unresolved[f"{name}="] = word.unresolved
        elif equals:
            exported[name] = value
        else:
            passed.append(name)
    for group in ("mca", "gmca", "omca", "prtemca"):
        for values in options.by_name.get(group, ()):
            if len(values) == 2 and not values[1].unresolved:
                exported[f"OMPI_MCA_{values[0].text}"] = values[1].text
    return exported, tuple(passed)


def _per_resource(options: Options) -> int | None:
    """``--map-by ppr:8:node``: as many on each host."""
    match = re.fullmatch(r"ppr:([0-9]{1,5}):node(:.*)?", options.text("map-by", "ppr"), re.ASCII)
    return int(match[1]) if match else None


def _several_programs(options: Options, ranks: int | None) -> tuple[tuple[Word, ...], int | None]:
    """The first program's words, and the ranks of all: ``-np 2 a : -np 4 b``."""
    colon = next((i for i, word in enumerate(options.rest) if word.text == ":" and not word.unresolved), None)
    if colon is None:
        return options.rest, ranks
    options.unresolved["programs"] = "several programs, with : between them"
    return options.rest[:colon], None
