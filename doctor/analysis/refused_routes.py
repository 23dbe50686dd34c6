"""What to do on a host whose own kernel refuses to send to another one. Pure."""

from __future__ import annotations

REFUSED_BY_ROUTE = (
    "{0} itself refuses to send to {1}. As root on {0}: `for n in {1}; do ip route show table all match $(getent "
    "ahosts $n | cut -d' ' -f1 | head -1); done | grep -E '^(unreachable|prohibit|blackhole)' | sed 's/ error "
    "[0-9-]*//; s/ *$//' | sort -u | xargs -rtL1 ip route del` deletes the routes that refuse, in all tables, and "
    "prints them. Where it still refuses: `for f in -4 -6; do ip $f rule | sed -nE "
    '"s/^([0-9]+):(.*(unreachable|prohibit|blackhole)) *$/ip $f rule del pref \\1 #\\2/p"; done` prints the command '
    "that deletes each rule that refuses. Where there is none: the rules for outgoing packets in `nft -a list ruleset` "
    "and `iptables-save`."
)
"""Of the host, and of other hosts or addresses, with blanks between them."""
