"""The rank table of some hosts of a run: reduced, checked by our own checks, counted."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from doctor.engine.catalog import bundled_folder, load_check
from doctor.engine.check import Check
from doctor.engine.evaluate import FactCache, Intent, evaluate_check
from doctor.engine.record import Run
from doctor.engine.result import Severity
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled
from doctor.facts.network import HostAddresses
from doctor.job import LaunchConfig, NotARankTable, RankTable, RankTableFile, match_servers, read_rank_table
from doctor.rank_table.build import BuiltRankTable, build_rank_table
from doctor.rank_table.build_parts import BuildProblem, FactLookup, RankTableBuildError
from doctor.rank_table.reduce import ReductionError
from doctor.rank_table.run_subset import subset


def verify(file: RankTableFile, launch: LaunchConfig = LaunchConfig()) -> tuple[str, ...]:
    """The failed checks of the table, one line each; empty when it is valid.

    Every check that needs nothing but the table is asked. Warnings stand against no table, and neither does what
    cannot be known without hosts; what cannot be read does.
    """
    intent: dict[type, object] = {RankTableFile: file, LaunchConfig: launch}
    try:
        intent[RankTable] = read_rank_table(file.path, file.text)
    except NotARankTable as why:
        intent[RankTable] = why.for_checks
    checks = (load_check(path) for path in sorted(bundled_folder("checks").glob("rank_table_*.py")))
    return tuple(line for check in checks if needs_table_only(check) for line in _check_problems(check, intent))


def needs_table_only(check: Check) -> bool:
    """The check needs only the rank table, and no fact of a host."""
    needs = {need.type for need in check.needs if not need.optional}
    return bool(needs & {RankTable, RankTableFile}) and needs <= {RankTable, RankTableFile, LaunchConfig}


def _check_problems(check: Check, intent: Intent) -> Iterable[str]:
    outcome = evaluate_check(check, (), FactCache({}), intent)
    if outcome.crashed:
        yield filled("{0}: the check crashed", check.name)
    elif outcome.findings and outcome.found_severity is Severity.ERROR:
        yield strip_control_chars(f"{check.name}: {outcome.findings[0]}")
    else:
        yield from (
            strip_control_chars(filled("{0}: {1}", check.name, why.text))
            for why in outcome.unknown.values()
            if why.root_cause.startswith("rank-table-")
        )


def reduce_verified(run: Run, hosts: Sequence[str], path: str) -> str:
    """The run's rank table for ``hosts``, fit to be written to ``path``; empty when the run has none.

    Raises: NotReduced.
    """
    table = subset(run, hosts).rank_table
    if table.error:
        raise ReductionError(table.error)
    if not table.text:
        return ""
    link = os.readlink(path) if os.path.islink(path) else ""
    product = LaunchConfig.from_options(run.launch).product
    problems = verify(RankTableFile(path, table.text, link_target=link), LaunchConfig(product=product))
    if problems:
        more = filled(", and {0} more", len(problems) - 1) if len(problems) > 1 else ""
        raise ReductionError(filled("the reduced rank table fails doctor's own checks: {0}{1}", problems[0], more))
    return table.text


def build_verified(
    hosts: Sequence[str],
    lookup: FactLookup,
    path: str,
    launch: LaunchConfig,
    devices: Sequence[int],
    names: Mapping[str, str],
) -> BuiltRankTable:
    """A validated table built from the hosts' facts, for ``path``.

    Raises: NotMade.
    """
    built = build_rank_table(hosts, lookup, launch, devices, names)
    link = os.readlink(path) if os.path.islink(path) else ""
    job = LaunchConfig(product=built.family, env=launch.env)  # type: ignore[arg-type]
    problems = verify(RankTableFile(path, built.text, link_target=link), job)
    if problems:
        raise RankTableBuildError([BuildProblem(line, True) for line in problems])
    return built


def slots_of(run: Run) -> dict[str, int]:
    """Ranks of each host: from the inventory or the command line, else as the rank table lists them."""
    ranks_per_host = run.launch.ranks_per_host
    if isinstance(ranks_per_host, int):
        return dict.fromkeys(run.hosts, ranks_per_host)
    if isinstance(ranks_per_host, dict):
        return ranks_per_host
    try:
        table = read_rank_table("", run.rank_table.text)
    except NotARankTable:
        return {}
    servers_by_host, _ = match_servers(table, run.hosts, FactCache(run.hosts).fleet(HostAddresses))
    return {host: sum(len(server.ranks) for server in servers) for host, servers in servers_by_host.items()}
