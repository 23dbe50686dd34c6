"""The rank table of some hosts of a run: reduced, checked by our own checks, counted."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from doctor.engine.catalog import home, load
from doctor.engine.check import Check
from doctor.engine.evaluate import Book, Intent, judge_one
from doctor.engine.record import Run
from doctor.engine.result import Severity
from doctor.engine.sanitize import plain
from doctor.facts.network import HostAddresses
from doctor.job import Launch, NotARankTable, RankTable, RankTableFile, placed, read_rank_table
from doctor.rank_table.build import Made, make
from doctor.rank_table.build_parts import Against, Look, NotMade
from doctor.rank_table.reduce import NotReduced
from doctor.rank_table.run_subset import subset


def verify(file: RankTableFile, launch: Launch = Launch()) -> tuple[str, ...]:
    """What stands against the table, a line for each check; empty when it can be used.

    Every check that needs nothing but the table is asked. Warnings stand against no table, and neither does what
    cannot be told without hosts; what cannot be read does.
    """
    intent: dict[type, object] = {RankTableFile: file, Launch: launch}
    try:
        intent[RankTable] = file.table()
    except NotARankTable as why:
        intent[RankTable] = why
    checks = (load(path) for path in sorted(home("checks").glob("rank_table_*.py")))
    return tuple(line for check in checks if of_table_alone(check) for line in _against(check, intent))


def of_table_alone(check: Check) -> bool:
    """It looks at the rank table, and at nothing that only hosts can tell."""
    needs = {need.type for need in check.needs if not need.optional}
    return bool(needs & {RankTable, RankTableFile}) and needs <= {RankTable, RankTableFile, Launch}


def _against(check: Check, intent: Intent) -> Iterable[str]:
    outcome = judge_one(check, (), Book({}), intent)
    if outcome.crashed:
        yield f"{check.name}: the check crashed"
    elif outcome.findings and outcome.severity is Severity.ERROR:
        yield plain(f"{check.name}: {outcome.findings[0]}")
    else:
        yield from (
            plain(f"{check.name}: {why.text}")
            for why in outcome.unknown.values()
            if why.because.startswith("rank-table-")
        )


def reduced(run: Run, hosts: Sequence[str], path: str) -> str:
    """The run's rank table for ``hosts``, fit to be written to ``path``; empty when the run has none.

    Raises: NotReduced.
    """
    found = subset(run, hosts).rank_table
    if found.get("error"):
        raise NotReduced(found["error"])
    if "text" not in found:
        return ""
    link = os.readlink(path) if os.path.islink(path) else ""
    product = Launch.from_environment(**run.launch).product
    against = verify(RankTableFile(path, found["text"], link=link), Launch(product=product))
    if against:
        more = f", and {len(against) - 1} more" if len(against) > 1 else ""
        raise NotReduced(f"the reduced rank table does not pass our own checks: {against[0]}{more}")
    return found["text"]


def fresh(
    hosts: Sequence[str], look: Look, path: str, launch: Launch, devices: Sequence[int], names: Mapping[str, str]
) -> Made:
    """A table made from what the hosts say, fit to be written to ``path``.

    Raises: NotMade.
    """
    made = make(hosts, look, launch, devices, names)
    link = os.readlink(path) if os.path.islink(path) else ""
    job = Launch(product=made.family, env=launch.env)  # type: ignore[arg-type]
    against = verify(RankTableFile(path, made.text, link=link), job)
    if against:
        raise NotMade([Against(line, True) for line in against])
    return made


def slots_of(run: Run) -> dict[str, int]:
    """Ranks of each host: as the inventory or the command line says, else as the rank table lists them."""
    said = run.launch.get("ranks_per_host")
    if isinstance(said, int):
        return dict.fromkeys(run.hosts, said)
    if isinstance(said, dict):
        return said
    try:
        table = read_rank_table("", run.rank_table.get("text", ""))
    except NotARankTable:
        return {}
    here, _ = placed(table, run.hosts, Book(run.hosts).fleet(HostAddresses))
    return {host: sum(len(server.ranks) for server in servers) for host, servers in here.items()}
