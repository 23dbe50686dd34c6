"""From the id of a job to its hosts and its logs, for every kind of scheduler."""

from __future__ import annotations

import msgspec

from doctor.engine.texts import filled


class JobPlace(msgspec.Struct, kw_only=True):
    """What a scheduler still knows of a job."""

    title: str
    """Such as ``Slurm job 77``."""
    number: str = ""
    """The id by which its scheduler knows it."""
    state: str = ""
    """Such as ``OUT_OF_MEMORY``; empty where the scheduler does not say."""
    ended: bool = False
    variables: dict[str, list[str]] = {}
    """By a variable that the scheduler gives to each process of a job: its values for this one."""
    hosts: list[str] = []
    batch_host: str = ""
    folder: str = ""
    """In which it was submitted."""
    outputs: list[str] = []
    """Patterns of its output files; absolute."""
    shared: bool = True
    """They may lie here, in a file system that the hosts share; False: they are those of the hosts alone."""
    texts: dict[str, str] = {}
    """What the scheduler printed, by command."""
    logs: dict[str, str] = {}
    """Logs of the job that the scheduler keeps itself, by name."""
    notes: list[str] = []

    @property
    def source(self) -> str:
        return filled("{0} ({1})", self.title, self.state) if self.state else self.title
