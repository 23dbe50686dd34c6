"""Faults of firewalls: rules of every manager, in the way of the job's ports."""

from __future__ import annotations

from tests.faults import Row

NFT = """\
nft -f - <<'END'
table inet site {
    chain incoming {
        type filter hook input priority 0
        tcp dport 60000-60031 drop
    }
}
END
"""
# ufw asks systemd for nothing here: it loads its rules itself.
UFW = "ufw allow 22/tcp && ufw --force enable"
NAME = "firewall-blocks-job"

ROWS = [
    Row(NAME, NFT, "nft delete table inet site", values={"manager": "nftables", "ports": "60000-60031"}),
    Row(
        NAME,
        "iptables-nft -A INPUT -p tcp --dport 29500 -j REJECT",
        "iptables-nft -F INPUT",
        fleet="cpu",
        values={"manager": "iptables", "ports": "29500", "peers": "every other host"},
    ),
    Row(
        NAME,
        "iptables-legacy -A OUTPUT -p tcp --dport 29500 -j DROP",
        "iptables-legacy -F OUTPUT",
        fleet="cpu",
        host=2,
        values={"manager": "iptables-legacy", "what": "outgoing connections to"},
    ),
    Row(
        NAME,
        UFW,
        "ufw --force disable",
        fleet="a3",
        values={"manager": "ufw", "ports": "29500, 32768-60999"},
    ),
    Row(
        NAME,
        "iptables-nft -A INPUT -p tcp -m multiport --dports 29401,29400 -j DROP",
        "iptables-nft -F INPUT",
        fleet="a1",
        environ={"MASTER_PORT": "29400"},
        values={"ports": "29400"},
    ),
]
