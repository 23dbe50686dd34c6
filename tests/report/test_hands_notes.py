"""Whom a reader asks for work of hands, and what they need of him."""

from __future__ import annotations

import pytest

from doctor.report.layout.advice import hands_notes

SERIAL, PORT = "cat /sys/class/dmi/id/product_serial", "ip -br link"


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("Reseat the card, then have it replaced.", SERIAL),
        ("Look at the switch port, and its VLAN.", PORT),
        ("`hccn_tool -i 3 -link -g`; then the switch port.", "hccn_tool -i 3 -lldp -g"),
        ("更换光模块。", SERIAL),
        ("检查交换机端口。", PORT),
    ],
)
def test_hands_are_asked_with_what_they_need(text: str, asked: str) -> None:
    (note,) = hands_notes(text, ["n1"])
    assert f"{asked}`" in note and "n1" in note


@pytest.mark.parametrize(
    "text",
    [
        "`sysctl -w vm.swappiness=1`, then start the job again.",
        "Have it replaced. For the vendor: `nvidia-smi -q | grep -i serial` and `nvidia-bug-report.sh`.",
        "Ask for the port that `hccn_tool -i 1 -lldp -g` names, and its VLAN.",
        "Replace the name in /etc/hosts by its address.",
        "修复其域名服务器。",
    ],
)
def test_what_a_command_mends_or_the_text_has_asked_for_needs_no_hands(text: str) -> None:
    assert hands_notes(text, ["n1"]) == []


def test_several_hosts_are_asked_for_alike() -> None:
    (note,) = hands_notes("Reseat the card.", ["n1", "n2"])
    assert "each of these hosts" in note
