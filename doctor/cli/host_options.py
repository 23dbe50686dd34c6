"""Options for the hosts of a command and the connection to them."""

from __future__ import annotations

import math
import shlex
import sys
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from msgspec.structs import replace

from doctor.engine.errors import UsageError, require_one_of
from doctor.engine.record import LaunchOptions
from doctor.engine.texts import filled

if TYPE_CHECKING:
    from doctor.hosts.selection import HostSelection
    from doctor.session.examine_options import ExamineOptions
    from doctor.transport.options import SshOptions as SshOptions


TRANSPORT_NAMES = ("ssh", "openssh", "tree", "slurm", "mpi", "kubernetes")
"""As `doctor.transport.open.open_transport` takes them."""
_SSH_ONLY_OPTIONS = ("ssh_config", "user", "port", "identity", "ask_pass", "accept_new")
_POD_OPTIONS = ("selector", "namespace", "container", "kubeconfig", "context", "node_image")


HostfileOption = Annotated[str | None, typer.Option(metavar="FILE", help="Hosts from an MPI or DeepSpeed hostfile.")]
RankTableOption = Annotated[
    str | None, typer.Option(metavar="FILE", help="The job's rank table; checked, and names the hosts.")
]
ExcludeOption = Annotated[str | None, typer.Option("--exclude", "-x", metavar="NODES", help="Exclude these hosts.")]
ProductOption = Annotated[str, typer.Option(metavar="A1|A2|A3", help="NPU family, if no host reports it.")]

SudoOption = Annotated[bool, typer.Option("--sudo", help="Use sudo -n for facts that need root.")]


def require_finite(seconds: float) -> float:
    """Of an option with a time. Raises: BadParameter for ``nan`` and ``inf``, which pass every limit."""
    if not math.isfinite(seconds):
        raise typer.BadParameter(filled("{0} is no time in seconds; expected a number", seconds))
    return seconds


TimeoutOption = Annotated[
    float, typer.Option(metavar="S", min=1, callback=require_finite, help="Timeout per host, in seconds.")
]
BudgetOption = Annotated[
    float, typer.Option(metavar="S", min=0, callback=require_finite, help="Time limit of the run, in seconds; 0: none.")
]
WorkersOption = Annotated[int, typer.Option(metavar="N", min=0, help="Hosts in parallel; 0: automatic.")]
WithinOption = Annotated[str, typer.Option(metavar="WORDS", help='Check inside the container: "docker exec -i NAME".')]
ScopeOption = Annotated[
    str, typer.Option("--scope", metavar="auto|local", help="local: do not ask whether the job has more hosts.")
]
SCOPES = ("auto", "local")
DEFAULT_TIMEOUT = 60.0
"""Seconds of ``--timeout``."""


class VisitOptions(NamedTuple):
    """Privileges, time limits and parallelism of the connections to the hosts."""

    sudo: SudoOption = False
    timeout: TimeoutOption = DEFAULT_TIMEOUT
    budget: BudgetOption = 0.0
    workers: WorkersOption = 0


class HostOptions(NamedTuple):
    """Which hosts."""

    nodes: Annotated[str | None, typer.Argument(metavar="[HOSTS]", help="Hosts, for example node[001-064],gpu7.")] = (
        None
    )
    hosts: Annotated[str | None, typer.Option("--hosts", metavar="NODES", help="The same as HOSTS.")] = None
    hostfile: HostfileOption = None
    rank_table: RankTableOption = None
    exclude: ExcludeOption = None
    of_job: Annotated[
        str, typer.Option("--job", metavar="[KIND/]NAME", help="The pods of this job, with --transport kubernetes.")
    ] = ""

    @property
    def selection(self) -> HostSelection:
        from doctor.hosts.selection import HostSelection

        return HostSelection(self.hosts, self.hostfile, self.rank_table, self.exclude, self.nodes)

    def selection_by(self, connection: ConnectionOptions) -> HostSelection:
        """The same, and what the connection's options say of pods. Raises: UsageError."""
        return connection.select(self.selection, self.of_job)


class ConnectionOptions(NamedTuple):
    """Transport to the hosts."""

    within: WithinOption = ""
    transport: Annotated[str, typer.Option(metavar="|".join(TRANSPORT_NAMES), help="Transport to the hosts.")] = "ssh"
    ssh_config: Annotated[
        str, typer.Option("--ssh-config", "-F", metavar="FILE", help="SSH config file, as for ssh -F.")
    ] = ""
    user: Annotated[str, typer.Option("--user", "-l", metavar="NAME", help="SSH user.")] = ""
    port: Annotated[
        int, typer.Option("--port", "-p", metavar="PORT", min=0, max=65535, help="SSH port.", show_default=False)
    ] = 0
    identity: Annotated[list[str], typer.Option("--identity", "-i", metavar="FILE", help="SSH private key.")] = []
    ask_pass: Annotated[bool, typer.Option("--ask-pass", help="Ask for the SSH password.")] = False
    accept_new: Annotated[bool, typer.Option("--accept-new", help="Accept and store unknown host keys.")] = False
    connect_timeout: Annotated[
        float,
        typer.Option(
            metavar="S", min=0, callback=require_finite, help="Connection timeout in seconds; 0: that of ssh."
        ),
    ] = 0
    gateways: Annotated[
        str, typer.Option(metavar="FILE", help="ClusterShell's topology.conf, for --transport tree.")
    ] = ""
    selector: Annotated[str, typer.Option(metavar="LABELS", help="Pods with these labels, as for kubectl -l.")] = ""
    namespace: Annotated[str, typer.Option(metavar="NAME", help="Namespace of the pods; else kubectl's own.")] = ""
    container: Annotated[
        str, typer.Option(metavar="NAME", help="Container of the pods; else the one that kubectl chooses.")
    ] = ""
    kubeconfig: Annotated[str, typer.Option(metavar="FILE", help="Configuration of kubectl.")] = ""
    context: Annotated[str, typer.Option(metavar="NAME", help="Context of kubectl's configuration.")] = ""
    node_image: Annotated[
        str,
        typer.Option(metavar="IMAGE", help="HOSTS are nodes: a privileged pod of this image on each, removed after."),
    ] = ""

    def select(self, selection: HostSelection, job: str = "") -> HostSelection:
        """A selection of hosts with what these options, and the job's name, say of pods. Raises: UsageError."""
        if self.transport != "kubernetes":
            if job:
                raise UsageError("--job names pods; expected --transport kubernetes with it")
            return selection
        from doctor.hosts.selection import PodSelection

        for option, value in (("--hostfile", selection.hostfile), ("--rank-table", selection.rank_table)):
            if value:
                raise UsageError(
                    filled("{0} names no pods; expected HOSTS, --selector or --job with --transport kubernetes", option)
                )
        options = {name: getattr(self, name) for name in _POD_OPTIONS}
        return replace(selection, pods=PodSelection(job=job, connect_timeout=self.connect_timeout, **options))


def with_job_of_pods(connection: ConnectionOptions, job: str) -> tuple[ConnectionOptions, str]:
    """``--job k8s:NAMESPACE/NAME`` as ``--transport kubernetes --namespace NAMESPACE --job NAME``, others as they are.

    Raises: UsageError for another form, and beside options that say something else.
    """
    from doctor.diagnose.job.kinds import pods_of_kind

    pods = pods_of_kind(job)
    if pods is None:
        return connection, job
    if connection.transport not in ("ssh", "kubernetes"):
        raise UsageError(filled("--job k8s: is for pods; expected it without --transport {0}", connection.transport))
    if connection.namespace not in ("", pods.namespace):
        raise UsageError("--job k8s: and --namespace name two namespaces; expected one")
    return connection._replace(transport="kubernetes", namespace=pods.namespace), pods.job


class JobOptions(NamedTuple):
    """Options that describe the job."""

    python: Annotated[str, typer.Option(metavar="PATH", help="The job's Python interpreter on the hosts.")] = ""
    ranks_per_host: Annotated[
        int, typer.Option(metavar="N", min=0, help="Ranks of the job per host.", show_default=False)
    ] = 0
    master_addr: Annotated[str, typer.Option(metavar="HOST", help="The job's MASTER_ADDR.")] = ""
    master_port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65535, help="The job's MASTER_PORT.", show_default=False)
    ] = 0

    def launch(self, product: str = "") -> LaunchOptions:
        return LaunchOptions(
            python=self.python,
            ranks_per_host=self.ranks_per_host or None,
            master_addr=self.master_addr,
            master_port=self.master_port or None,
            product=product,
        )


def validate_product(product: str) -> None:
    """Raises: CommandError for an unknown NPU family."""
    require_one_of("--product", product, ("", "A1", "A2", "A3"))


def validate_connection(connection: ConnectionOptions) -> None:
    """Raises: CommandError for what cannot be followed, before anything is done."""
    require_one_of("--transport", connection.transport, TRANSPORT_NAMES)
    unusable = {"ssh": (), "openssh": (), "tree": ("ask_pass",)}.get(connection.transport, _SSH_ONLY_OPTIONS)
    for option in unusable:
        if getattr(connection, option):
            flag = "--" + option.replace("_", "-")
            raise UsageError(filled("{0} is for SSH; expected it without --transport {1}", flag, connection.transport))
    if connection.gateways and connection.transport != "tree":
        raise UsageError("--gateways is for hosts behind gateways; expected --transport tree with it")
    for option in () if connection.transport == "kubernetes" else _POD_OPTIONS:
        if getattr(connection, option):
            flag = "--" + option.replace("_", "-")
            raise UsageError(filled("{0} is for pods; expected --transport kubernetes with it", flag))
    try:
        shlex.split(connection.within)
    except ValueError as error:
        raise UsageError(
            filled("--within {0}: {1}; expected a command in shell syntax", f"{connection.within!r}", error)
        ) from None


def ssh_options(connection: ConnectionOptions, verify: bool = True) -> SshOptions:
    """How to log in; asks for the password if there is to be one.

    ``verify``: the files that the options name must be there. Raises: CommandError.
    """
    from doctor.session.named_files import require_connection_files
    from doctor.transport.options import SshOptions

    options = SshOptions(
        config=connection.ssh_config,
        user=connection.user,
        port=connection.port,
        identity=tuple(connection.identity),
        connect_timeout=connection.connect_timeout or None,
        accept_new=connection.accept_new,
        password=_password() if connection.ask_pass else "",
        gateways=connection.gateways,
    )
    if verify:
        require_connection_files(options, connection.transport == "tree")
    return options


def examine_options(
    connection: ConnectionOptions, visit: VisitOptions, launch: LaunchOptions | None, within: str
) -> ExamineOptions:
    """How hosts are reached and visited; a command adds what else is examined. Raises: CommandError."""
    from doctor.session.examine_options import ExamineOptions

    return ExamineOptions(
        transport=connection.transport,
        ssh=ssh_options(connection),
        sudo=visit.sudo,
        within=within,
        timeout=visit.timeout,
        budget=visit.budget,
        workers=visit.workers,
        launch=launch or ExamineOptions().launch,
    )


def connection_words(connection: ConnectionOptions, visit: VisitOptions) -> tuple[str, ...]:
    """The options by which another command reaches the hosts of a saved run, which keeps none. Raises: CommandError."""
    if connection == ConnectionOptions() and not visit.sudo:
        return ()
    return examine_options(connection._replace(ask_pass=False), visit, None, connection.within).connection_words


def _password() -> str:
    if not sys.stdin.isatty():
        raise UsageError("--ask-pass needs a terminal to ask on")
    from getpass import getpass

    return getpass("SSH password: ")
