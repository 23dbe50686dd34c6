"""`doctor net`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import replace

from doctor.cli.host_options import (
    SCOPES,
    ConnectionOptions,
    HostOptions,
    JobOptions,
    ProductOption,
    ScopeOption,
    SudoOption,
    TimeoutOption,
    VisitOptions,
    WorkersOption,
    connection_words,
    examine_options,
    require_finite,
    validate_connection,
    validate_product,
)
from doctor.cli.launch_source import SourceOptions, job_targets
from doctor.cli.shared_options import (
    CheckOptions,
    NoHistoryOption,
    OutputOptions,
    expand_option_groups,
    history_options,
)
from doctor.engine.errors import InputError, UsageError, require_one_of
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled
from doctor.net.host_groups import topology_of
from doctor.net.plan import NetOptions, tries_devices
from doctor.session.finish import examine_and_report, load_saved_run, replay_and_report, validate_output
from doctor.session.select_checks import choose_checks, load_catalog

MODES = ("quick", "full")
DEVICE_NETWORK = (
    "device-unreachable",
    "hccs-unreachable",
    "rdma-gid-wrong",
    "rdma-port-down",
    "rdma-port-slow",
    "rdma-settings-differ",
)
"""Checks of the accelerators' own network, which are made beside those of the hosts'."""

CAUSES_ON_HOSTS = (
    "duplicate-address",
    "firewall-blocks-job",
    "host-name-ambiguous",
    "host-name-unresolved",
    "interface-unreachable",
    "master-address-unresolved",
    "master-address-wrong",
)
"""Checks of what decides on the hosts themselves whether the job's programs reach each other: names, interfaces, rules
of firewalls. What these lead to is tried."""


@expand_option_groups
def command(
    *,
    hosts: HostOptions,
    scope: ScopeOption = "auto",
    net: Annotated[
        str, typer.Option("--net", metavar="quick|full", help="quick: some pairs of each host; full: all, and speeds.")
    ] = "full",
    seed: Annotated[int, typer.Option(metavar="N", min=0, max=2**31 - 1, help="Random seed of the schedule.")] = 1,
    no_speeds: Annotated[
        bool, typer.Option("--no-speeds", help="With --net full: all pairs and ports, without latency and throughput.")
    ] = False,
    topology: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Slurm's topology.conf; unless given, the one beside slurm.conf."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Measure speeds although a job runs on the hosts.")] = False,
    budget: Annotated[
        float, typer.Option(metavar="S", min=5, callback=require_finite, help="Time limit of the test, in seconds.")
    ] = 300.0,
    choice: CheckOptions,
    job: JobOptions,
    source: SourceOptions,
    product: ProductOption = "",
    connection: ConnectionOptions,
    sudo: SudoOption = False,
    timeout: TimeoutOption = 60.0,
    workers: WorkersOption = 0,
    output: OutputOptions,
    no_history: NoHistoryOption = False,
) -> None:
    """Have the hosts try their network, and name what fails.

    Every host listens for some seconds on the ports that the job will use, and connects to the other hosts, both ways.
    Hosts come from the same sources as in `doctor check`. Nothing is left on the hosts.

    `doctor net HOSTS -- torchrun --nnodes 2 train.py` tries the ports that this launch line gives the job.

    Exit codes: as `doctor check`; 78 with a single host, since there is nothing to try.
    """
    validate_product(product)
    validate_connection(connection)
    validate_output(output, choice.checks)
    require_one_of("--scope", scope, SCOPES)
    require_one_of("--net", net, MODES)
    catalog = load_catalog(choice.checks)
    selected = choose_checks(
        catalog, choice.select or ["network", *CAUSES_ON_HOSTS, *DEVICE_NETWORK], choice.ignore, roots=True
    )
    if not any(fact.probe.kind == "network-test" for check in selected for fact in check.facts):
        raise UsageError("--select and --ignore leave no check of the network test; expected one of the area network")
    if output.from_file:
        run = load_saved_run(output.from_file)
        require_two_hosts(list(run.hosts), run.hosts_unknown)
        reached_by = connection_words(connection, VisitOptions(sudo))
        raise typer.Exit(replay_and_report(run, selected, catalog, output, command="net", connection=reached_by))
    job_environment = source.read()
    inventory, launch, within = job_targets(job_environment, hosts, scope, job, connection, product)
    require_two_hosts(inventory.hosts, inventory.hosts_unknown)
    visit = VisitOptions(sudo, timeout, workers=workers)
    options = replace(
        examine_options(connection, visit, launch, within),
        net=NetOptions(
            mode="full" if net == "full" else "quick",
            seed=seed,
            budget=budget,
            speeds=not no_speeds,
            force=force,
            devices=tries_devices(selected),
            topology=topology_of(topology) if topology else "",
        ),
    )
    environ, table = job_environment.environ, hosts.rank_table or ""
    history = history_options("net", output, no_history)
    raise typer.Exit(examine_and_report(inventory, selected, options, environ, table, catalog, output, history, "net"))


def require_two_hosts(hosts: Sequence[str], hosts_unknown: str) -> None:
    """Raises: InputError, where the only host is all that the job has: nothing was tried, so nothing is healthy."""
    if len(hosts) == 1 and not hosts_unknown:
        raise InputError(
            filled("nothing to try: {0} is the only host; expected two or more", strip_control_chars(hosts[0], 100))
        )
