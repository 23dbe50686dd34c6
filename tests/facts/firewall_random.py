"""Rule sets drawn by chance, of what administrators write: the same ones for the same seed."""

from __future__ import annotations

import random
from collections.abc import Sequence

PORTS = (22, 80, 443, 8080, 29500, 29501, 40000, 60000, 60001, 60015, 60031, 65535)
"""Those that the tests listen on."""
HOST, PEERS = "10.9.0.1", ("10.9.0.2", "10.9.0.77", "10.9.3.9")
NETWORKS = ("10.9.0.0/24", "10.9.0.0/16", "10.9.0.64/26", "10.9.2.0/23", "10.0.0.0/8", "192.168.0.0/16")


class Nft:
    """One rule set for ``nft -f``. Some that are drawn are none: nft refuses them."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.doubtful = self.chance.random() < 0.3
        """With rules that cannot be judged."""

    def pick(self, *choices: str) -> str:
        return self.chance.choice(choices)

    def sometimes(self, share: float, text: str) -> str:
        return text if self.chance.random() < share else ""

    def port(self) -> str:
        return str(self.chance.choice((*PORTS, 1, 1024, 50500)))

    def ports(self) -> str:
        low, high = sorted((int(self.port()), int(self.port())))
        few = sorted({int(self.port()) for _ in range(self.chance.randint(1, 4))})
        listed = ", ".join([*map(str, few), *([self.sometimes(0.3, "60002-60014")] if 60000 not in few else [])])
        return self.pick(self.port(), f"{low}-{high}" if low < high else str(low), f"{{ {listed.rstrip(', ')} }}")

    def address(self) -> str:
        several = ("10.9.0.2-10.9.0.80", "{ 10.9.0.2, 10.9.3.9 }", "{ 10.9.0.0/26, 10.9.3.0/24 }", "{ 10.1.0.0/16 }")
        return self.pick(*PEERS, HOST, *NETWORKS, *several)

    def match(self, hook: str) -> str:
        no = self.sometimes(0.25, "!= ")
        return self.pick(
            *[f"tcp dport {no}{self.ports()}"] * 8,
            *[f"ip saddr {no}{self.address()}"] * 4,
            *[f"ip daddr {no}{self.address()}"] * 2,
            *[self.of_connection()] * 3,
            self.of_interface(hook),
            self.pick(
                "meta l4proto tcp", "meta l4proto udp", "ip protocol tcp", "ip protocol != tcp", "meta protocol ip"
            ),
            f"ip saddr . tcp dport {no}{{ 10.9.0.2 . {self.port()}, 10.9.0.77 . {self.port()}, 10.9.3.9 . 22 }}",
            f"ip saddr . tcp dport {no}{{ 10.9.0.0/24 . 22-500, 10.9.3.9 . {self.port()} }}",
            self.pick("tcp flags syn", "tcp flags & (fin|syn|rst|ack) == syn", "tcp flags == syn", "tcp flags ack"),
            self.pick("tcp flags & (psh|ack) == psh|ack", "tcp flags & psh == 0", "meta length < 1400"),
            self.pick("meta mark 1", "meta mark & 0x3 == 0x2", "meta mark != 0"),
            self.pick("meta mark set 1", "meta mark set meta mark | 2", "meta mark set meta mark & 0xfe"),
            self.pick("udp dport 53", "icmp type echo-request", "udp dport != 53"),
            f"tcp dport {no}@ports",
            f"ip saddr {no}@addresses",
            f"ip saddr . tcp dport {no}@pairs",
            self.pick("tcp dport > 1024", "tcp dport <= 443", "tcp sport 1024-65535", "tcp sport < 1024"),
            self.pick(
                "th dport >= 60000", "tcp sport 40001-59999", "counter", 'log prefix "x"', "fib daddr type local"
            ),
            self.of_route(hook),
            self.in_doubt(),
        )

    def of_connection(self) -> str:
        states = ("established,related", "new", "{ established, related }", "invalid", "!= new", "!= established")
        others = ("ct status dnat", "ct direction original", "ct direction reply")
        return self.pick(*(f"ct state {state}" for state in states), *others)

    def of_interface(self, hook: str) -> str:
        if hook == "output":
            return self.pick('oifname "eth0"', 'oifname "lo"', 'oifname != "eth*"')
        return self.pick(
            'iifname "eth0"', 'iifname "eth*"', 'iifname != "eth0"', "iif lo", 'iifname { "lo", "docker0" }'
        )

    def of_route(self, hook: str) -> str:
        incoming = ("meta pkttype host", "fib saddr . iif oif missing") if hook in ("input", "prerouting") else ()
        return self.pick("fib saddr type unicast", "fib daddr type { local, broadcast }", *incoming)

    def in_doubt(self) -> str:
        doubts = (
            "limit rate 1000/second",
            "limit rate over 1000/second",
            "meta skuid 0",
            "meta length > 10",
            "ip ttl 64",
        )
        return self.pick(*doubts) if self.doubtful else "counter"

    def verdict(self, chains: Sequence[str]) -> str:
        some = [f"{self.pick('jump', 'goto')} {self.chance.choice(chains)}"] if chains else []
        refuse = self.pick(
            "reject", "meta l4proto tcp reject with tcp reset", "reject with icmpx type admin-prohibited"
        )
        return self.pick(*["accept"] * 8, *["drop"] * 4, refuse, "return", "", *some * 3, self.choice(chains))

    def choice(self, chains: Sequence[str]) -> str:
        def act() -> str:
            return self.pick("accept", "drop", "continue", "return", *(f"jump {chain}" for chain in chains))

        return self.pick(
            f"tcp dport vmap {{ 22 : {act()}, 29500 : {act()}, 60000-60031 : {act()} }}",
            f"ct state vmap {{ established : {act()}, related : accept, invalid : drop }}",
            f"ip saddr . tcp dport vmap {{ 10.9.0.2 . 29500 : {act()}, 10.9.3.9 . 80 : {act()} }}",
            "tcp dport vmap @verdicts",
        )

    def rules(self, most: int, chains: Sequence[str], hook: str) -> str:
        lines = []
        for _ in range(self.chance.randint(1, most)):
            matches = [self.match(hook) for _ in range(self.chance.choice((0, 1, 1, 1, 2, 2, 3)))]
            lines.append(" ".join([*matches, self.verdict(chains)]).strip() or "counter")
        return "".join(f"  {line}\n" for line in lines)

    def table(self, number: int) -> str:
        chains: list[str] = []
        text = f"table {self.pick('inet', 'inet', 'ip')} t{number} {{\n" + SETS
        for at in range(self.chance.randint(0, 3)):
            text += f" chain s{at} {{\n{self.rules(4, tuple(chains), '')} }}\n"
            chains.append(f"s{at}")
        hooks = self.chance.sample(["input", "input", "output", "prerouting", "postrouting"], self.chance.randint(1, 3))
        for at, hook in enumerate(hooks):
            policy, priority = self.pick("accept", "accept", "drop"), self.pick("0", "-10", "10", "-150")
            established = self.sometimes(0.85, "  ct state established,related accept\n") if policy == "drop" else ""
            head = f"type filter hook {hook} priority {priority}; policy {policy};"
            text += f" chain c{at} {{\n  {head}\n{established}{self.rules(6, chains, hook)} }}\n"
        return text + "}\n"

    def script(self) -> str:
        return "flush ruleset\n" + "".join(self.table(number) for number in range(self.chance.choice((1, 1, 2))))


SETS = """\
 set ports { type inet_service; flags interval; elements = { 22, 29500-29501, 60000 }; }
 set addresses { type ipv4_addr; flags interval; elements = { 10.9.0.0/26, 10.9.3.0/24 }; }
 set pairs { type ipv4_addr . inet_service; flags interval; elements = { 10.9.0.0/26 . 29500, 10.9.3.9 . 22-443 }; }
 map verdicts { type inet_service : verdict; elements = { 22 : accept, 29500 : drop }; }
"""


class Iptables:
    """One rule set for ``iptables-restore``."""

    HOOKS = {
        "raw": ("PREROUTING", "OUTPUT"),
        "mangle": ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"),
        "filter": ("INPUT", "OUTPUT"),
    }

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.doubtful = self.chance.random() < 0.3

    def pick(self, *choices: str) -> str:
        return self.chance.choice(choices)

    def port(self) -> int:
        return self.chance.choice((*PORTS, 1, 1024, 30000))

    def span(self) -> str:
        low, high = sorted((self.port(), self.port()))
        return f"{low}:{high}"

    def addresses(self) -> str:
        return f"{self.pick('', '! ')}{self.pick('-s', '-d')} {self.pick(*PEERS, HOST, *NETWORKS)}"

    def of_interface(self, chain: str) -> str:
        if chain in ("INPUT", "PREROUTING"):
            return self.pick("-i eth0", "! -i lo", "-i lo", "-i eth+")
        return self.pick("-o eth0", "! -o lo", "-o e+") if chain == "OUTPUT" else ""

    def of_tcp(self) -> str:
        no = self.pick("", "", "! ")
        return self.pick(
            f"-m tcp {no}--dport {self.port()}",
            f"-m tcp {no}--dport {self.span()}",
            f"-m multiport {no}--dports {self.port()},{self.port()}",
            f"-m multiport {no}--ports {self.port()},{self.port()}",
            f"-m tcp {no}--tcp-flags FIN,SYN,RST,ACK SYN",
            self.pick("-m tcp --tcp-flags PSH,ACK PSH,ACK", f"-m tcp {no}--tcp-flags PSH PSH"),
            self.pick("-m tcp --tcp-flags SYN,ACK SYN,ACK", "-m tcp --sport 1024:65535", "-m tcp --dport 0:1023"),
            *[""] * 3,
        )

    def extra(self, chain: str) -> str:
        states = ("RELATED,ESTABLISHED", "NEW", "INVALID", "NEW,DNAT", "UNTRACKED")
        kinds = ("LOCAL", "UNICAST", "BROADCAST,MULTICAST")
        incoming = chain in ("INPUT", "PREROUTING")
        return self.pick(
            *(f"-m conntrack --ctstate {state}" for state in states),
            self.pick("-m conntrack ! --ctstate NEW", "-m state --state ESTABLISHED", "-m conntrack --ctdir ORIGINAL"),
            self.pick("-m comment --comment foo", '-m comment --comment "a b \\"c\\" d"'),
            self.pick(*(f"-m addrtype {side} {kind}" for side in ("--src-type", "! --dst-type") for kind in kinds)),
            self.pick("-m iprange --src-range 10.9.0.2-10.9.0.80", "-m iprange ! --src-range 10.9.0.70-10.9.0.80"),
            self.pick("-m mark --mark 0x1", "-m mark --mark 0x2/0x3", "-m mark ! --mark 0x0"),
            self.pick("-m pkttype --pkt-type unicast", "-m pkttype ! --pkt-type unicast") if incoming else "",
            self.pick("-m limit --limit 1000/sec", "-m ttl --ttl-gt 5", "-m length --length 10:9999")
            if self.doubtful
            else "",
            *[""] * 6,
        )

    def target(self, table: str, tcp: bool, chains: Sequence[str]) -> str:
        refuse = self.pick("REJECT", "REJECT --reject-with tcp-reset" if tcp else "REJECT")
        go = [f"{self.pick('-j', '-j', '-g')} {self.chance.choice(chains)}"] if chains else []
        mark = ["-j MARK --set-xmark 0x1/0xffffffff", "-j MARK --set-xmark 0x2/0x2"] if table == "mangle" else []
        stop = f"-j {refuse}" if table == "filter" else "-j DROP"
        return self.pick(*["-j ACCEPT"] * 8, *["-j DROP"] * 4, stop, "-j RETURN", "", "-j LOG", *go * 3, *mark)

    def rule(self, table: str, chain: str, chains: Sequence[str]) -> str:
        tcp = self.chance.random() < 0.75
        protocol = "-p tcp" if tcp else self.pick("", "", "-p udp", "! -p tcp", "-p udp -m udp --dport 53")
        arguments = [
            self.addresses() if self.chance.random() < 0.35 else "",
            self.of_interface(chain) if self.chance.random() < 0.2 else "",
            protocol,
            self.of_tcp() if tcp else "",
            self.extra(chain),
            self.target(table, tcp, chains),
        ]
        return f"-A {chain} {' '.join(word for word in arguments if word)}\n"

    def table(self, name: str) -> str:
        hooks, most = self.HOOKS[name], 5 if name == "filter" else 2
        chains = [f"S{at}" for at in range(self.chance.randint(0, 3))]
        drops = {hook for hook in hooks if name == "filter" and self.chance.random() < 0.35}
        text = f"*{name}\n" + "".join(f":{hook} {'DROP' if hook in drops else 'ACCEPT'} [0:0]\n" for hook in hooks)
        text += "".join(f":{chain} - [0:0]\n" for chain in chains)
        for at, chain in enumerate(chains):
            text += "".join(self.rule(name, chain, chains[:at]) for _ in range(self.chance.randint(1, 4)))
        for hook in hooks:
            if hook in drops and self.chance.random() < 0.8:
                text += f"-A {hook} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n"
            text += "".join(self.rule(name, hook, chains) for _ in range(self.chance.randint(0, most)))
        if name == "raw" and self.chance.random() < 0.3:
            text += "-A PREROUTING -p tcp -m tcp --dport 29500 -j CT --notrack\n"
        return text + "COMMIT\n"

    def script(self) -> str:
        return "".join(self.table(name) for name in self.HOOKS if name == "filter" or self.chance.random() < 0.35)
