"""What one host has answered so far in a network test."""

from __future__ import annotations

from typing import Any

from doctor.net.run.sessions import AttemptReport, ListenerReport, PaceReport, ProberMessage, SpeedReport


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
        self.programs: list[str] | None = None
        """Of the accelerators' own network, that it has."""
        self.serving: set[int] = set()
        self.called: dict[int, list[tuple[str, str, float]]] = {}
        """Label, output and seconds of the programs of each order."""
        self.devices: list[dict[str, Any]] = []
        """What became of its devices' attempts: see `doctor.net.device_trials.DeviceTrial`."""
        self.faults: list[str] = []

    def take_programs(self, message: ProberMessage) -> None:
        """Takes in what a prober says of the programs of the accelerators' own network."""
        if message.programs is not None:
            self.programs = message.programs
        if message.serving is not None:
            self.serving.add(message.serving)
        if message.called is not None:
            self.called[message.round] = message.called
