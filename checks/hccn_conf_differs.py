from collections.abc import Iterable, Iterator, Mapping

from doctor import WARNING, Finding, Skip, check, filled
from doctor.engine.fact import Unreadable
from doctor.facts.container import HostContainer
from doctor.facts.hccn.device_addresses import DetectAddresses, DeviceAddresses, DeviceGateways, HccnConf

KEYS = ("address", "netmask", "gateway", "netdetect")
COMMON = {
    "netmask": "The other NPUs have netmask {0}, in use and in the file.",
    "gateway": "The other NPUs have gateway {0}, in use and in the file.",
}
"""What the NPUs of a host usually have in common, and the sentence that says so."""
UNSET_ADDRESS = "0.0.0.0"
CAUSES = {
    "device-ip-unset": ("npu", "observed=settings"),
    "device-ip-conflict": ("address=ip", "observed=settings"),
    "device-ip-refused": ("npu", "observed=settings"),
    "device-ip-segment-wrong": ("npu", "observed=settings"),
    "device-netmask-differs": ("npu", "observed=settings"),
    "gateway-outside-segment": ("npu", "observed=settings"),
    "detect-address-unset": ("npu", "observed=settings"),
    "detect-address-is-self": ("npu", "observed=settings"),
    "device-net-unhealthy": ("npu", "observed=settings"),
}


@check(severity=WARNING, area="addresses", follows_from=CAUSES)
def hccn_conf_differs(
    conf: HccnConf | None,
    addresses: DeviceAddresses,
    gateways: DeviceGateways | None,
    detect: DetectAddresses | None,
    place: HostContainer | None,
) -> Iterator[Finding]:
    """The NPUs' addresses, netmasks, gateways and detect addresses are those of /etc/hccn.conf.

    ## Why it matters
    The NPU holds the settings in use now; the file holds those that every start of the host applies. Where they differ,
    the job works until a restart and then does not: the NPU comes up with another address, or none.

    ## What to do
    On {host}, while no job runs:
    - Differs: {recover} {keep} {others}
    - Absent: Put the file back from a copy. Without one: `install -m 640 /dev/null /etc/hccn.conf` as root, for
      hccn_tool writes only to a file that exists. {keep} For all NPUs: `doctor fix write-hccn-conf -w {host}`.

    ## Source
    The driver's public source (cfg.c and the recovery code): hccn_tool's set commands write the file, recovery reads
    it. With udhcpc_enable the address and the gateway come from DHCP and are not checked here; a bond has an address of
    its own.
    """
    if addresses.from_file:
        raise Unreadable("hccn_tool is not here: what the NPUs use cannot be compared with /etc/hccn.conf")
    live = dict(_live_settings(addresses, gateways, detect))
    held = sorted({npu for (npu, _), value in live.items() if value})
    if conf is None and not held:
        raise Skip("no NPU has a setting that could be lost")
    if conf is None and place and place.engine:
        raise Skip("the container was not given /etc/hccn.conf, which is a file of its host")
    if conf is None:
        template = "/etc/hccn.conf does not exist: the settings of NPU {npus} are lost at the next start of the host"
        yield Finding(
            template,
            npu=held[0],
            npus=held,
            case="Absent",
            keep=_keep_command(held[0], KEYS, live),
        )
        return
    for npu in sorted({npu for npu, _ in live}):
        in_use = {
            key: live[npu, key] for key in KEYS if (npu, key) in live and not _may_be_absent(npu, key, live, conf)
        }
        configured = {key: conf.by_npu.get(npu, {}).get(key, "").replace(UNSET_ADDRESS, "") for key in in_use}
        apart = [key for key in in_use if in_use[key] != configured[key]]
        if apart:
            observed, expected = ({key: values[key] or "none" for key in apart} for values in (in_use, configured))
            odd = next((key for key in COMMON if apart == [key] or (key == "netmask" and key in apart)), "")
            others = {other: value for (other, key), value in live.items() if key == odd and other != npu}
            common = {text for other, value in others.items() for text in (value, conf.by_npu.get(other, {}).get(odd))}
            is_file_odd = odd != "" and common == {in_use[odd]}
            is_npu_odd = odd != "" and apart == [odd] and common == {configured[odd]}
            yield Finding(
                "NPU {npu} uses {observed}; /etc/hccn.conf has {expected}",
                case="Differs",
                npu=npu,
                npus=[npu],
                address=live.get((npu, "address"), ""),
                recover=filled(COMMON[odd], in_use[odd])
                if is_file_odd
                else filled("If the file is right: `hccn_tool -i {0} -cfg recovery`.", npu),
                keep="" if is_npu_odd else _keep_command(npu, apart, live),
                others=filled(COMMON[odd], configured[odd]) if is_npu_odd else "",
                observed=observed,
                expected=expected,
            )


def _keep_command(npu: int, keys: Iterable[str], live: Mapping[tuple[int, str], str]) -> str:
    """The commands that write what the NPU uses now, in words; empty where it uses nothing."""
    values = {key: live.get((npu, key), "") for key in KEYS}
    commands = {
        "address": f"-ip -s address {values['address']} netmask {values['netmask']}",
        "gateway": f"-gateway -s gateway {values['gateway']}",
        "netdetect": f"-netdetect -s address {values['netdetect']}",
    }
    wanted = dict.fromkeys("address" if key == "netmask" else key for key in keys)
    shown = [f"`hccn_tool -i {npu} {commands[key]}`" for key in wanted if values[key]]
    return filled("If the NPU is right: {0}.", ", ".join(shown)) if shown else ""


def _live_settings(
    addresses: DeviceAddresses, gateways: DeviceGateways | None, detect: DetectAddresses | None
) -> Iterator[tuple[tuple[int, str], str]]:
    """The settings that each NPU uses; empty where one is not set. Unreadable ones, and IPv6, are left out."""
    for npu, interface in addresses.by_npu.items():
        if interface.version == 4:
            yield (npu, "address"), str(interface.ip)
            yield (npu, "netmask"), str(interface.netmask)
    facts = (
        ("address", addresses.unset, {}),
        *((key, fact.unset, fact.by_npu) for key, fact in (("gateway", gateways), ("netdetect", detect)) if fact),
    )
    for key, unset, values in facts:
        yield from (((npu, key), "") for npu in unset)
        yield from (((npu, key), str(value)) for npu, value in values.items() if value.version == 4)


def _may_be_absent(npu: int, key: str, live: Mapping[tuple[int, str], str], conf: HccnConf) -> bool:
    """Whether the file need not hold this setting of the NPU."""
    settings = conf.by_npu.get(npu, {})
    if key == "netdetect":
        return False
    if any(owner in settings for owner in ("udhcpc_enable", "udhcpc_ipv6_enable", "bond_address")):
        return True
    if key == "netmask":
        return "address" not in settings  # reported once, for the address
    # A1 keeps the one gateway of a host under the NPU that it was set on, and every NPU shows it.
    gateways = [npu_settings["gateway"] for npu_settings in conf.by_npu.values() if "gateway" in npu_settings]
    return key == "gateway" and key not in settings and live[npu, key] in gateways
