"""Fills a page's "What to do" with a finding's values, so that its commands can be pasted into a shell."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from doctor.engine.language import localized, phrase, without_loose_spaces
from doctor.engine.shell_quote import PLACEHOLDER, open_quote, quote_value
from doctor.report.layout.formatting import unwrap_lines

COMMAND = re.compile(r"`[^`]*`")
_PERSONAL_WORD = re.compile(
    r"(?<![$\w{-])(?<!MODE=)(PID|NAME|ADDRESS|NETMASK|GATEWAY|NIC|CARD|CHIP|ID|N|WATTS|USER|HOSTS|HOST|PORT|MTU|NPU|DIE|NUMBER|COMMAND"
    r"|FILE|PACKAGE|DATA|DIRECTORY|FOLDER|JOB|SERVER)\b(?!=)|(?<=\w=)\.\.\."
)
_PERSONAL_NAMES = {"NIC": "network interface", "N": "number", "...": "value"}
_SPACED_PLACEHOLDER = re.compile(f"( ?){PLACEHOLDER.pattern}")
_MARK = re.compile(r"<[a-z][a-z ]{0,30}>")
_DRIVER_TOOL = re.compile(r"(?<![\w./-])(hccn_tool|msnpureport)(?=[ `])")
"""What the NPU's driver has in a folder of its own, which is in no PATH of a shell."""


_CASE = re.compile(r"- ([^`:：]+)[:：]")
"""An item of a list that is for one case."""


def case_labels(page: str) -> list[str]:
    r"""The label of each item of a page's list, empty where it has none.

    >>> case_labels("Look at it.\n- Heat: the fans.\n- Wait.")
    ['Heat', '']
    """
    items = [line for line in unwrap_lines(page) if line.startswith("- ")]
    return [match[1] if (match := _CASE.match(item)) else "" for item in items]


def for_cases(text: str, labels: Sequence[str], cases: Collection[str], *, labelled: bool = False) -> str:
    r"""A page without the items for other cases than these; those that stay are sentences.

    ``labels``: of the items in their order, which is the same in every language. Without ``cases`` the page stays as it
    is. One item that stays alone needs no label, unless its sentence is about that: ``labelled``.

    >>> print(for_cases("Look.\n- Heat: the fans.\n- Power: see `sensors`.", ["Heat", "Power"], {"Power"}))
    Look. See `sensors`.
    """
    lines = unwrap_lines(text)
    if not cases or sum(line.startswith("- ") for line in lines) != len(labels):
        return text
    remaining = iter(labels)
    is_alone = not labelled and sum(label in cases or not label for label in labels) == 1
    kept: list[str] = []
    for line in lines:
        if not line.startswith("- "):
            kept.append(line)
        elif (label := next(remaining)) in cases or not label:
            gap = "" if kept and kept[-1].endswith(("。", "：")) else " "
            item = line[2:]
            if is_alone and (match := _CASE.match(line)):
                rest = line[match.end() :].lstrip()
                item = rest[:1].upper() + rest[1:]
            kept[-1:] = [f"{kept[-1]}{gap}{item}" if kept else item]
    return "\n\n".join(kept)


_KERNEL_SETTINGS = (
    r"sysctl -w|ip (?:link|addr\w{0,8}|route|neigh\w{0,8}) (?:set|add|del|replace)|mount -o remount|ethtool -[GLKACs] "
    r"|(?:echo|printf) [^>]{0,200}> ?/(?:proc|sys)/|cpupower frequency-set|setpci"
    r"|(?:ip6?tables|nft) .{0,200}(?:-[IAD]|add|delete|insert)|(?:nvidia-smi|amd-smi) (?:.{0,200}-pl |set )"
)
_OF_ROOT = (
    r"modprobe|rmmod|systemctl (?!status)|u?mount |tc qdisc (?:del|add)|hccn_tool .{0,200}(?:-s |-cfg recovery)"
    r"|npu-smi set|nvidia-smi (?:.{0,200}-r\b|-pm|.{0,200}-c |nvlink -re)|(?:apt|dnf|apt-mark) |reboot|usermod|useradd"
    r"|hostnamectl|hostname (?!-)|tuned-adm|(?:echo|printf|sed -i) [^>]{0,200}(?:>{1,2} ?| )/etc/|chown|sh \./NVIDIA"
    r"|\./Ascend-\S{1,80}driver|ipmitool (?:chassis |power )|flint|dkms"
)
_CHANGES = re.compile(f"{_KERNEL_SETTINGS}|{_OF_ROOT}")
_NOTES = (
    (
        re.compile(r"hccn_tool .{0,200}-s "),
        re.compile(r"hccn\.conf"),
        "hccn_tool keeps the setting in /etc/hccn.conf, for the next start as well.",
    ),
    (
        re.compile(_KERNEL_SETTINGS),
        re.compile(r"/etc/|start|boot|firmware|keeps?\b|lost|firewall|重启|启动|保留|永久|丢失"),
        "The next restart of the host undoes this.",
    ),
    (_CHANGES, re.compile(r"\broot\b(?! >>)"), "The commands that change the host need root."),
)
"""What the reader must know of commands, the words by which a text says it already, and else the sentence."""


_BY_HAND = re.compile(
    r"reseat|have (?:it|the [^.`]{1,40}) (?:replaced|installed)|replace (?:it|the (?:card|GPU|NPU|board|module))"
    r"|the vendor|switch port|(?:into|in) the slot|the fans|out of the job"
    r"|重新插拔|更换|厂商|交换机端口|插槽|风扇|参加作业|移出作业",
    re.IGNORECASE,
)
"""Work on hardware, or a host that is better left out: until that is done, no command repairs it."""
_KEEPS_JOBS_AWAY = re.compile(r"state=drain|--exclude|cordon", re.IGNORECASE)


def drain_note(text: str, hosts: Sequence[str]) -> list[str]:
    """How to keep jobs off these hosts where the fix has work for hands and no command but one that ends all jobs.

    >>> drain_note("Reseat the module.", ["n1", "n2"])[0][-84:]
    'Back again: `scontrol update nodename=n1,n2 state=resume`, `kubectl uncordon n1 n2`.'
    >>> drain_note("`modprobe amdgpu`; else reseat the card.", ["n1"]), drain_note("Correct the line.", ["n1"])
    ([], [])
    >>> drain_note("`modprobe nvidia`; then `ipmitool chassis power cycle`; else reseat the card.", ["n1"])
    []
    """
    repairs = any(_CHANGES.match(step) and "power cycle" not in step for step in _programs(text))
    if not hosts or not _BY_HAND.search(text) or _KEEPS_JOBS_AWAY.search(text) or repairs:
        return []
    names = [quote_value(host) for host in hosts]
    slurm, nodes = ",".join(names), " ".join(names)
    note = phrase(
        "Until it is repaired, keep jobs off {host}. Slurm: `scontrol update nodename={slurm} state=drain "
        "reason=repair`; Kubernetes: `kubectl cordon {nodes}`. Back again: `scontrol update nodename={slurm} "
        "state=resume`, `kubectl uncordon {nodes}`.",
        host=localized(", ").join(hosts), slurm=slurm, nodes=nodes,
    )  # fmt: skip
    return [note]


_SWITCHES = re.compile(
    r"switch(?:es)?(?:'s)? ports?|VLAN|ports? of (?:the|its) switch|on the switch|switches"
    r"|交换机(?!允许|或|、|侧管理|过)"
)
_PARTS = re.compile(
    r"\breseat|\breplace (?:it\b(?! by)|what has|its (?:cable|memory)|(?:the |that )?(?:optical |memory |defective )?"
    r"(?:card|GPU|NPU|board|module|adapter|disk|drive|cable|riser|transceiver|fan)s?\b)"
    r"|(?<!be )\breplaced\b|fibre|transceiver|the fans|air ducts|power supplies"
    r"|the (?:slot|riser|cable|board)\b|examined\b|inspected\b|the vendor\b(?!'s| of)"
    r"|重新插拔|更换 ?(?:该|部件|基板|其|它|[NG]PU|磁盘|线缆|网卡|光模块|内存|板卡|有)"
    r"|光纤|光模块|风扇|风道|插槽|线缆|送检|检修|联系厂商|报告厂商",
    re.IGNORECASE,
)
_SERIAL_KNOWN = re.compile(r"serial|nvidia-bug-report|bundle-logs|static --board")
_LLDP = re.compile(r"-lldp -g")
_NPU = re.compile(r"hccn_tool -i (\d{1,3}) ")


def hands_notes(text: str, hosts: Sequence[str]) -> list[str]:
    """Whom to ask where a fix has work for hands, and what to give them; a text may have said the second already.

    >>> hands_notes("Reseat the card.", ["n1"])
    ['For the hardware team or the vendor, the serial number: `cat /sys/class/dmi/id/product_serial` as \
root on n1.']
    >>> hands_notes("`hccn_tool -i 3 -link -g`, then the switch port.", ["n1"])[0][-41:]
    'hccn_tool -i 3 -lldp -g` on n1 prints it.'
    >>> hands_notes("Have the card replaced: `nvidia-bug-report.sh`.", ["n1"]), hands_notes("Wait.", ["n1"])
    ([], [])
    """
    notes: list[str] = []
    several = localized("each of these hosts") if hosts else localized("its host")
    place = quote_value(hosts[0]) if len(hosts) == 1 else several
    if _SWITCHES.search(text) and not _LLDP.search(text):
        npu = _NPU.search(text)
        note = phrase(
            "For the network team, the name of the port or the hardware address behind it: `{command}` "
            "on {host} prints it.",
            command=f"hccn_tool -i {npu[1]} -lldp -g" if npu else "ip -br link", host=place,
        )  # fmt: skip
        notes.append(note)
    if _PARTS.search(text) and not _SERIAL_KNOWN.search(text):
        note = phrase(
            "For the hardware team or the vendor, the serial number: "
            "`cat /sys/class/dmi/id/product_serial` as root on {host}.",
            host=place,
        )
        notes.append(note)
    return [with_tool_paths(note) for note in notes]


def changes_host(text: str) -> bool:
    """Whether a command of a text changes the host: it does more than to look.

    >>> changes_host("`findmnt -T /data`"), changes_host("Without errors: `mount -o remount,rw /data`.")
    (False, True)
    """
    return any(map(_CHANGES.match, _programs(text)))


def _programs(text: str) -> list[str]:
    """The steps of the commands in a text, without the folders of their programs."""
    steps = [step for command in COMMAND.findall(text) for step in re.split(r"&&|[;|`]", command)]
    return [re.sub(r"^\s*(?:/\S+/)?", "", step) for step in steps]


def command_notes(text: str) -> list[str]:
    """What is to be said behind a fix of the commands in it: as whom, and whether a restart undoes them.

    >>> command_notes("`sysctl -w vm.overcommit_memory=0`")
    ['The next restart of the host undoes this.', 'The commands that change the host need root.']
    >>> command_notes("As root: `/usr/bin/hccn_tool -i 4 -mtu -s size 4096`"), command_notes("`hccn_tool -i 4 -ip -g`")
    (['hccn_tool keeps the setting in /etc/hccn.conf, for the next start as well.'], [])
    >>> command_notes("`echo vm.swappiness=1 >> /etc/sysctl.d/job.conf`")
    ['The commands that change the host need root.']
    """
    programs = _programs(text)
    return [
        localized(note)
        for pattern, exception, note in _NOTES
        if not exception.search(text) and any(map(pattern.match, programs))
    ]


def standalone_placeholders(template: str) -> set[str]:
    """The placeholders that are a line of their own: sentences that the check wrote."""
    return {line.strip()[1:-1] for line in template.splitlines() if PLACEHOLDER.fullmatch(line.strip())}


def fill_advice(template: str, values: Mapping[str, str], texts: Mapping[str, str] | None = None) -> str:
    """``template`` with its placeholders filled in. A value that a finding lacks, as that of an older report may, is
    nothing in a sentence, and ``<like this>`` in a command.

    ``values`` are for commands, ``texts`` for the sentences around them; without ``texts``, the same for both.

    Between backquotes stands a command. What a host printed must stay one word, or part of one, there: it is quoted
    as its place asks for, unless the placeholder is the whole command and so the check's own.
    """
    parts = re.split(r"(`[^`]*`)", template)
    texts = values if texts is None else texts
    filled = (_fill_command(part, values) if part.startswith("`") else _fill_text(part, texts) for part in parts)
    return with_tool_paths(without_loose_spaces("".join(filled)).strip())


def with_tool_paths(text: str) -> str:
    """Commands of the NPU's driver by their whole path, so that a shell finds them.

    >>> with_tool_paths("`hccn_tool -i 3 -ip -g`, as hccn_tool shows it")
    '`/usr/local/Ascend/driver/tools/hccn_tool -i 3 -ip -g`, as hccn_tool shows it'
    """
    return COMMAND.sub(lambda command: _DRIVER_TOOL.sub(r"/usr/local/Ascend/driver/tools/\1", command[0]), text)


def _fill_text(part: str, values: Mapping[str, str]) -> str:
    def substitute(match: re.Match[str]) -> str:
        return match[1] + values[match[2]] if match[2] in values else ""

    return _SPACED_PLACEHOLDER.sub(substitute, part)


def _fill_command(part: str, values: Mapping[str, str]) -> str:
    is_alone = PLACEHOLDER.fullmatch(part.strip("`"))

    def substitute(match: re.Match[str]) -> str:
        if match[1] not in values:
            return _mark(match)
        return values[match[1]] if is_alone else quote_value(values[match[1]], open_quote(part[1 : match.start()]))

    return PLACEHOLDER.sub(substitute, part)


def _mark(match: re.Match[str]) -> str:
    return f"<{match[1].replace('_', ' ')}>"


def mark_personal_words(text: str) -> str:
    """Values that only the reader has appear as ``<like this>`` in every command of ``text``.

    >>> mark_personal_words("`kill PID`, then `export MASTER_PORT=...`; a PID is a number")
    '`kill <pid>`, then `export MASTER_PORT=<value>`; a PID is a number'
    >>> mark_personal_words("`export HCCL_OP_EXPANSION_MODE=HOST`")
    '`export HCCL_OP_EXPANSION_MODE=HOST`'
    >>> mark_personal_words("`docker run -e USER=worker`, `nvidia-imex-ctl -N`")
    '`docker run -e USER=worker`, `nvidia-imex-ctl -N`'
    """

    def mark(match: re.Match[str]) -> str:
        return f"<{_PERSONAL_NAMES.get(match[0], match[0].lower())}>"

    return COMMAND.sub(lambda command: _PERSONAL_WORD.sub(mark, command[0]), text)


def mark_unknown(template: str, names: Collection[str]) -> str:
    """In commands, the placeholders whose values doctor does not know appear as ``<like this>``.

    >>> mark_unknown("`kill {pid}` on {host}", {"pid"})
    '`kill <pid>` on {host}'
    """

    def mark(match: re.Match[str]) -> str:
        return _mark(match) if match[1] in names else match[0]

    return COMMAND.sub(lambda command: PLACEHOLDER.sub(mark, command[0]), template)


def marks(template: str) -> tuple[str, ...]:
    """What the reader must fill in: the marks in the commands of ``template``, each once."""
    return tuple(dict.fromkeys(mark for command in COMMAND.findall(template) for mark in _MARK.findall(command)))
