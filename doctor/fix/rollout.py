"""From a plan to hosts that are proven to be mended: the first alone, then the others, until one is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from doctor.fix.apply import Applying, Done
from doctor.fix.build_plan import Case, Planned
from doctor.fix.journal import Journal
from doctor.fix.parallel import Halt, each
from doctor.fix.plan import treated
from doctor.fix.verify import Proof, prove
from doctor.transport import Transport


class Result(msgspec.Struct, frozen=True):
    """What became of an applied plan."""

    id: str
    done: tuple[Done, ...]
    proofs: tuple[Proof, ...]
    not_begun: tuple[str, ...]
    stopped: int = 0
    """The exit code of the interrupt that ended it."""

    @property
    def code(self) -> int:
        """0 when all that was planned is proven, 12 when what is not is unknown, else 10."""
        if self.stopped:
            return self.stopped
        if self.not_begun or any(one.state != "applied" for one in self.done):
            unknown = any(one.state == "unknown" for one in self.proofs)
            red = any(one.state == "red" for one in self.proofs) or any(one.state != "applied" for one in self.done)
            return 12 if unknown and not red else 10
        states = {one.state for one in self.proofs}
        return 10 if states & {"red", "waits"} else 12 if "unknown" in states else 0


Tell = Callable[[Done | Proof], None]


def apply(
    case: Case, planned: Planned, transport: Transport, journal: Journal, force: bool, batch: int, tell: Tell
) -> Result:
    """The canary, then the others in batches, each proven before the next; ends at the first that is not."""
    with Halt() as halt:
        return _Course(case, planned, Applying(transport, journal, force, halt.event), batch, tell, halt).go()


class _Course:
    def __init__(self, case: Case, planned: Planned, applying: Applying, batch: int, tell: Tell, halt: Halt) -> None:
        self.case, self.planned, self.applying, self.tell, self.halt = case, planned, applying, tell, halt
        self.batch = batch
        self.hosts = [one.host for one in planned.plan.to_do]
        self.left = list(self.hosts)
        self.run = planned.run
        self.done: list[Done] = []
        self.proofs: dict[tuple[str, str], Proof] = {}

    def go(self) -> Result:
        while self.left and self._goes_on():
            size = self.batch if any(one.state == "applied" for one in self.done) else 1
            mended = self._apply(self.left[:size])
            over = {one.host for one in self.done}
            self.left = [host for host in self.left if host not in over]
            if mended and not self.halt.code:
                self._prove(mended)
        waiting = [one.host for one in self.proofs.values() if one.state == "waits"]
        if waiting and not self.halt.code:
            self._prove(waiting, last=True)
        plan = self.planned.plan
        return Result(plan.id, tuple(self.done), tuple(self.proofs.values()), tuple(self.left), self.halt.code)

    def _goes_on(self) -> bool:
        if self.halt.code or any(one.state in ("refused", "stopped") for one in self.done):
            return False
        return all(one.state in ("green", "waits") for one in self.proofs.values())

    def _apply(self, hosts: Sequence[str]) -> list[str]:
        works = [self.planned.works[host] for host in hosts]
        mended = []
        for _, done in each(works, self.applying.host, len(works), self.applying.stop):
            self.done.append(done)
            self.tell(done)
            if done.state == "applied":
                mended.append(done.host)
        return mended

    def _prove(self, hosts: Sequence[str], last: bool = False) -> None:
        """Runs the checks of these hosts again, beside what the others said."""
        names = {host: treated(self.planned.works[host].planned) for host in dict.fromkeys(hosts)}
        checks = [one for one in self.case.checks if any(one.name in wanted for wanted in names.values())]
        # What hosts see of each other is asked of all of them.
        whole = any(fact.needs for one in checks for fact in one.facts)
        seen = self.case.examined(() if whole else list(names), checks)
        records = {
            host: msgspec.structs.replace(record, outputs={**self.run.hosts[host].outputs, **record.outputs})
            if not record.visit.trouble
            else record
            for host, record in seen.run.hosts.items()
        }
        self.run = msgspec.structs.replace(self.run, hosts={**self.run.hosts, **records})
        mended = [one.host for one in self.done if one.state == "applied"]
        waiting = [] if last else self.hosts
        for proof in prove(self.case.judged(self.run, checks), names, mended, waiting):
            self.proofs[proof.host, proof.check] = proof
            self.applying.journal.proof(proof.host, f"{proof.check}: {proof.state} {proof.why}".strip())
            self.tell(proof)
