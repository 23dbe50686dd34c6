"""The pods of one job, of any controller: rows of ``jobs.toml``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from doctor.engine.sanitize import first_names, printable
from doctor.engine.texts import filled
from doctor.engine.toml_compat import read_table
from doctor.hosts.nodeset import InventoryError
from doctor.transport.kubernetes.pods import Pod, natural_order


class OwnerRow(msgspec.Struct, frozen=True):
    """A row: how the pods of a kind of jobs are recognized."""

    kinds: tuple[str, ...]
    source: str
    label: str = ""
    owner: str = ""
    beside: dict[str, str] = {}
    named: bool = True

    def has(self, pod: Pod, name: str = "") -> bool:
        """Whether a pod is of the job of this name: by its label, and by its owner where the row names one.

        Without a name: whether it is of any such job.
        """
        owned = any(owner.kind == self.owner and (self.label or name in ("", owner.name)) for owner in pod.owners)
        value = pod.labels.get(self.label)
        return (not self.label or value == name or bool(value and not name)) and (not self.owner or owned)

    def is_beside(self, pod: Pod) -> bool:
        """Whether it starts the job, and is no host of it."""
        return any(pod.labels.get(label) == value for label, value in self.beside.items())


class JobPods(NamedTuple):
    """The pods of a job, in the natural order of their names."""

    pods: list[Pod]
    notes: tuple[str, ...]


@cache
def job_kinds() -> tuple[OwnerRow, ...]:
    """The rows."""
    table = read_table(Path(__file__).with_name("jobs.toml"), dict[str, list[OwnerRow]])
    return tuple(table["job"])


def is_named(pod: Pod) -> bool:
    """Whether the pod may have a name by which others look it up."""
    return all(row.named or not row.has(pod) for row in job_kinds())


def rows_of_kind(job: str) -> list[OwnerRow]:
    """Those of the kind of ``KIND/NAME``, all for ``NAME``. Raises: InventoryError for a kind that no row has."""
    kind = job.rpartition("/")[0].lower()
    rows = [row for row in job_kinds() if not kind or kind in row.kinds]
    if not rows:
        accepted = ", ".join(dict.fromkeys(word for row in job_kinds() for word in row.kinds))
        raise InventoryError(filled("--job {0}: an unknown kind; expected one of {1}", printable(job, 120), accepted))
    return rows


def pods_of_job(job: str, pods: Sequence[Pod]) -> JobPods:
    """Those of the pods that belong to ``NAME`` or ``KIND/NAME``.

    Raises: InventoryError, where none does, or jobs of two kinds have the name.
    """
    rows, name = rows_of_kind(job), job.rpartition("/")[2]
    job = printable(job, 120)
    rows_by_kind = {row.kinds[0]: row for row in reversed(rows) if any(row.has(pod, name) for pod in pods)}
    # A JobSet's pods are also those of a Job, and an operator may keep to an older label beside its own.
    members = {kind: {pod.name for pod in pods if row.has(pod, name)} for kind, row in rows_by_kind.items()}
    largest = max(members, key=lambda key: len(members[key]), default="")
    if not largest:
        raise InventoryError(filled("--job {0}: none of the {1} pods of the namespace belongs to it", job, len(pods)))
    strangers = sorted(key for key, names in members.items() if not names <= members[largest])
    if strangers:
        pair = ", ".join(f"{key}/{name}" for key in (largest, *strangers))
        raise InventoryError(filled("--job {0}: jobs of several kinds have this name; expected one of {1}", job, pair))
    row = rows_by_kind[largest]
    members_of_job = [pod for pod in pods if pod.name in members[largest]]
    beside = [pod for pod in members_of_job if row.is_beside(pod)]
    rest = [pod for pod in members_of_job if pod not in beside]
    current, replaced = without_replaced(rest or members_of_job)
    notes = [_note_on(pod) for pod in beside[:4] if rest]
    return JobPods(sorted(current, key=natural_order), (*notes, *replaced))


def _note_on(pod: Pod) -> str:
    """Also why it does not run: the others may wait for it."""
    why = pod.why_unready(pod.container())
    if why:
        return filled("{0} starts the job, and is no host of it: {1}", pod.name, why)
    return filled("{0} starts the job, and is no host of it", pod.name)


def without_replaced(pods: Iterable[Pod]) -> tuple[list[Pod], tuple[str, ...]]:
    """Without those that have ended or are being deleted, and in whose place their controller has made a later one.

    A note says which.
    """
    items = list(pods)
    latest: dict[tuple[object, ...], str] = {}
    for pod in items:
        if pod.place and not pod.leaves:
            latest[pod.place] = max(latest.get(pod.place, ""), pod.metadata.creation_timestamp or "")
    replaced = [
        pod.name for pod in items if pod.leaves and (pod.metadata.creation_timestamp or "") < latest.get(pod.place, "")
    ]
    current = [pod for pod in items if pod.name not in replaced]
    if not replaced:
        return current, ()
    note = filled(
        "left out, as later pods stand in their place: {0} pods, ended or terminating: {1}",
        len(replaced),
        first_names(replaced),
    )
    return current, (note,)
