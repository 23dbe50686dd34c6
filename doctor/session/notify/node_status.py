"""A verdict on nodes of Kubernetes as the documents that its API takes: condition, event, label, taint. Pure.

Sources: Kubernetes, core/v1 types (NodeCondition, merged by ``type``; Event; Taint: a patch replaces the whole list);
node-problem-detector, pkg/exporters/k8sexporter (a condition is True where there is a problem; only its status is
patched); kubectl describe (events of a node have its name as UID, as the kubelet writes them).
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

import msgspec

from doctor.config.notify_targets import NODE_PARTS
from doctor.engine.exit_code import Exit, Verdict, verdict
from doctor.engine.result import Report
from doctor.engine.sanitize import strip_control_chars
from doctor.report.formats.oneline import causes
from doctor.report.layout.host_health import classify_hosts
from doctor.session.notify.message import Message

__all__ = ["COMMANDS", "NODE_PARTS", "NodeVerdict", "node_verdicts"]

COMMANDS = ("check", "smoke", "net")
"""Whose verdicts are verdicts on nodes; each has a condition, labels and a taint of its own."""
DOMAIN = "cluster-doctor.dev"
MAX_MESSAGE = 500
"""Characters; a node's object is sent to every kubelet and controller."""
_STATUS = {"failed": "True", "healthy": "False", "unknown": "Unknown"}


class NodeVerdict(msgspec.Struct, frozen=True):
    """The verdict that is sent to one node."""

    node: str
    command: str
    state: str
    """healthy, failed or unknown."""
    reason: str
    """One word in CamelCase, as conditions have it."""
    message: str

    @property
    def condition_type(self) -> str:
        return f"ClusterDoctor{self.command.title()}Failed"

    @property
    def key(self) -> str:
        """Of the label with the state, and of the taint."""
        return f"{DOMAIN}/{self.command}"

    def condition(self, node: Mapping[str, Any], now: datetime) -> dict[str, Any]:
        """The condition. The time of its last change is that of the condition that the node has, if it is alike."""
        time, before = _time(now), self.earlier(node)
        alike = before.get("status") == _STATUS[self.state]
        return {
            "type": self.condition_type,
            "status": _STATUS[self.state],
            "reason": self.reason,
            "message": self.message,
            "lastHeartbeatTime": time,
            "lastTransitionTime": before.get("lastTransitionTime", time) if alike else time,
        }

    def earlier(self, node: Mapping[str, Any]) -> Mapping[str, Any]:
        """The condition that the node has; empty where it has none."""
        conditions = _mapping(node.get("status")).get("conditions")
        items = [_mapping(item) for item in conditions] if isinstance(conditions, list) else []
        return next((item for item in items if item.get("type") == self.condition_type), {})

    def changes(self, node: Mapping[str, Any]) -> bool:
        """Whether the node's condition has another status or reason, or there is a problem and no condition yet."""
        before = self.earlier(node)
        if not before:
            return self.state != "healthy"
        return (before.get("status"), before.get("reason")) != (_STATUS[self.state], self.reason)

    def labels(self, now: datetime) -> dict[str, str]:
        """State and time; the time is a whole number, which an affinity can compare with (Gt)."""
        return {self.key: self.state, f"{self.key}-time": str(int(now.timestamp()))}

    def taints(self, node: Mapping[str, Any]) -> list[Any] | None:
        """All taints that the node is to have, those of others included; None where they may stay as they are.

        What keeps new pods off a failed node goes when it is healthy, and stays while that is not known.
        """
        present = _mapping(node.get("spec")).get("taints")
        taints = present if isinstance(present, list) else []
        mine = {"key": self.key, "value": "failed", "effect": "NoSchedule"}
        others = [taint for taint in taints if _mapping(taint).get("key") != self.key]
        wanted = [*others, mine] if self.state == "failed" else others
        is_same = len(wanted) == len(taints) and (self.state != "failed" or mine in taints)
        return None if self.state == "unknown" or is_same else wanted

    def event(self, now: datetime) -> dict[str, Any]:
        time = _time(now)
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{self.node}.{secrets.token_hex(8)}", "namespace": "default"},
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": self.node, "uid": self.node},
            "reason": self.reason,
            "message": self.message,
            "type": "Normal" if self.state == "healthy" else "Warning",
            "source": {"component": "cluster-doctor", "host": self.node},
            "firstTimestamp": time,
            "lastTimestamp": time,
            "count": 1,
        }


def node_verdicts(report: Report, code: int, command: str, message: Message) -> list[NodeVerdict]:
    """The verdict on each host of a report that comes with the exit code ``code``.

    Of one host, the exit code decides, with all that options make of it; of several, what is known of each.
    """
    if len(report.hosts) == 1:
        states = {report.hosts[0]: _state(report, code)}
    else:
        health = classify_hosts(report)
        states = dict.fromkeys(report.hosts, "unknown")
        states |= dict.fromkeys(health.healthy, "healthy") | dict.fromkeys(health.bad, "failed")
    reasons = causes(report, code)
    return [
        NodeVerdict(host, command, state, _reason(state, host, reasons, len(states)), _text(state, host, message))
        for host, state in states.items()
    ]


def _state(report: Report, code: int) -> str:
    word = verdict(report, code)
    if word is Verdict.FAILED:
        return "failed"
    return "healthy" if code in (Exit.HEALTHY, Exit.WARNINGS) else "unknown"


def _reason(state: str, host: str, reasons: list[tuple[str, tuple[str, ...]]], count: int) -> str:
    """``LinkDown`` of link-down: of what explains most."""
    if state == "healthy":
        return "NoErrorFound"
    names = [name for name, hosts in reasons if host in hosts or count == 1]
    words = re.findall(r"[A-Za-z0-9]+", names[0][:60]) if names and state == "failed" else []
    reason = "".join(word[:1].upper() + word[1:] for word in words)
    return reason if reason[:1].isalpha() else ("ErrorFound" if state == "failed" else "NotChecked")


def _text(state: str, host: str, message: Message) -> str:
    """What was found on the host; else the headline of the run."""
    mine = [finding for finding in message.findings if host in finding.hosts]
    grave = [finding for finding in mine if finding.severity == "error"] or mine
    text = "; ".join(f"{finding.check}: {finding.text}" for finding in grave) if state == "failed" else ""
    text = " ".join((text or message.headline).split())
    return strip_control_chars(text, MAX_MESSAGE)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _time(now: datetime) -> str:
    return now.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
