"""``horovodrun`` of Horovod.

Source: Horovod, horovod/runner/launch.py (https://horovod.readthedocs.io/en/stable/running_include.html).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from doctor.job.launch_line.launcher import Started, host_list
from doctor.job.launch_line.model import LaunchCall
from doctor.job.launch_line.options import option_table, split_options
from doctor.job.shell.word import Word

NAMES = ("horovodrun",)

_TABLE = option_table(
    """
    np/num-proc num-proc H/hosts hosts hostfile network-interfaces p/ssh-port ssh-port i/ssh-identity-file
    ssh-identity-file start-timeout config-file output-filename min-np max-np slots-per-host host-discovery-script
    reset-limit mpi-args fusion-threshold-mb cycle-time-ms cache-capacity log-level timeline-filename
    """,
    "v/version version h/help help check-build disable-cache verbose gloo mpi jsrun tcp binding-args",
    abbreviates=False,
    joins_letters=False,
)


def read(command: str, argv: tuple[Word, ...], environ: Mapping[str, str]) -> Started:
    """See `doctor.job.launch_line.launcher.ReadCall`."""
    options = split_options(command, argv, _TABLE)
    named = host_list(options.text("hosts"))
    hosts = tuple(dict.fromkeys(re.sub(r":[0-9]{1,6}$", "", host) for host in named))
    is_elastic = bool({"min-np", "max-np", "host-discovery-script"} & {*options.by_name, *options.unresolved})
    ranks = None if is_elastic else options.number("num-proc", least=1)
    if is_elastic:
        options.unresolved["num-proc"] = "an elastic launch"
    call = LaunchCall(
        launcher="horovodrun",
        command=command,
        nodes=len(hosts) or None,
        ranks=ranks,
        hosts=hosts,
        hostfile=options.text("hostfile"),
        options=options.as_texts(),
        unresolved=options.unresolved,
        problems=tuple(options.problems),
    )
    return Started(call, options.rest)
