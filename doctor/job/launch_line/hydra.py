"""``mpiexec`` and ``mpirun`` of MPICH (Hydra), Intel MPI and MVAPICH.

Source: MPICH, src/pm/hydra/mpiexec (https://github.com/pmodels/mpich/tree/main/src/pm/hydra/mpiexec); Intel MPI Library
Developer Reference, "Global Hydra Options" and "Local Hydra Options"
(https://www.intel.com/content/www/us/en/docs/mpi-library/developer-reference-linux/2021-14/global-hydra-options.html).
"""

from __future__ import annotations

from collections.abc import Mapping

from doctor.job.launch_line.launcher import Started, host_list
from doctor.job.launch_line.model import LaunchCall
from doctor.job.launch_line.openmpi import TABLE as OF_OPEN_MPI
from doctor.job.launch_line.options import Options, option_table, split_options
from doctor.job.shell.word import Word

NAMES = ("mpiexec.hydra", "mpirun.mpich", "mpiexec.mpich", "mpiexec.mpi", "mpirun_rsh", "mpiexec.intel")

TABLE = option_table(
    """
    f/hostfile hostfile machinefile machine/machinefile hosts/host host H/host ghost/host n/np np gn/np gnp/np ppn
    perhost/ppn grr/ppn rr-size genvlist genvexcl envlist envexcl wdir gwdir/wdir dir/wdir path gpath/path configfile
    launcher rmk bootstrap/launcher bootstrap-exec launcher-exec iface bind-to map-by membind topolib usize
    errfile-pattern outfile-pattern prepend-pattern pmi-port-range localhost nodes hosts-group tune umask s
    disable-hostname-propagation order-nodes order-nodes-weight silent-abort nameserver ckpointlib ckpoint-prefix
    ckpoint-num demux branch-count port-range gpus-per-proc pmi-args info-name soft arch file dapl ofa tmpdir
    r/bootstrap binding pmi-vm singleton maxtime
    """,
    """
    genvnone genvall envnone envall verbose v/verbose info print-rank-map print-all-exitcodes exitinfo l rr
    enable-x disable-x disable-auto-cleanup enable-auto-cleanup nolocal prepend-rank trace check-mpi gtool-all
    skip-launch-node version V/version h/help help cleanup ilp64 tv gdb static-mpi t p pmi-connect disable-hostname
    """,
    "genv env",
    abbreviates=False,
    joins_letters=False,
)


def is_present(argv: tuple[Word, ...], environ: Mapping[str, str]) -> bool:
    """Whether ``mpirun`` is rather Hydra's: an option that Open MPI does not have, or Intel MPI's environment."""
    options = split_options("mpirun", argv, OF_OPEN_MPI)
    if options.unrecognised:
        return bool(TABLE.canonical(options.unrecognised.lstrip("-").partition("=")[0]))
    return "I_MPI_ROOT" in environ and "OPAL_PREFIX" not in environ


def read(command: str, argv: tuple[Word, ...], environ: Mapping[str, str]) -> Started:
    """See `doctor.job.launch_line.launcher.ReadCall`."""
    options = split_options(command, argv, TABLE)
    exported, passed = _exports(options)
    hosts = tuple(dict.fromkeys(host.partition(":")[0] for host in host_list(options.text("host"))))
    colon = next((i for i, word in enumerate(options.rest) if word.text == ":" and not word.unresolved), None)
    if colon is not None:
        options.unresolved["programs"] = "several programs, with : between them"
    call = LaunchCall(
        launcher="hydra",
        command=command,
        nodes=len(hosts) if hosts and not any("[" in host for host in hosts) else None,
        ranks=options.number("np", least=1) if colon is None else None,
        ranks_per_node=options.number("ppn", least=1, most=65536),
        hosts=hosts,
        hostfile=options.text("hostfile", "machinefile"),
        environ=exported,
        passed=passed,
        options=options.as_texts(),
        unresolved=options.unresolved,
        problems=tuple(options.problems),
    )
    inherits = not {"genvnone", "envnone", "genvlist", "envlist"} & options.by_name.keys()
    return Started(call, options.rest[:colon], inherits_environment=inherits)


def _exports(options: Options) -> tuple[dict[str, str], tuple[str, ...]]:
    exported: dict[str, str] = {}
    for group in ("genv", "env"):
        for values in options.by_name.get(group, ()):
            if len(values) == 2 and values[1].unresolved:
                options.unresolved[f"{values[0].text}="] = values[1].unresolved
            elif len(values) == 2:
                exported[values[0].text] = values[1].text
    names = ",".join(word.text for word in options.texts("genvlist", "envlist") if not word.unresolved)
    return exported, tuple(name for name in names.split(",") if name)
