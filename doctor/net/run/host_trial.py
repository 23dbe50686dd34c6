"""What one host has answered so far in a network test."""

from __future__ import annotations

from typing import Any

from doctor.net.run.sessions import AttemptReport, ListenerReport, PaceReport, SpeedReport


class HostTrial:
    """What one host has answered so far."""

    def __init__(self) -> None:
        self.hello: dict[str, Any] | None = None
        self.listeners: dict[int, ListenerReport] = {}
        """By place of the port."""
        self.has_listened = False
        self.attempts: dict[tuple[int, int], AttemptReport] = {}
        """By target and place of the port: the last one made."""
        self.done: set[int] = set()
        self.arrived: set[tuple[str, int]] | None = None
        """Address and port of each call whose first packet came; all that was ever reported."""
        self.arrivals_reported = 0
        self.pace: PaceReport | None = None
        """As it answered when it was last asked."""
        self.busy = ""
        """What kept it from answering in time while the last attempts were made; empty where nothing did."""
        self.speeds: list[SpeedReport] = []
        self.measured: set[int] = set()
        """Numbers of the measurements that it has reported."""
        self.job: list[tuple[int, str]] | None = None
        self.faults: list[str] = []
