from collections.abc import Iterator

from doctor import WARNING, Finding, Skip, check
from doctor.facts.host_settings import HostSettings

SLOW = ("hpet", "acpi_pm", "jiffies", "refined-jiffies")


@check(severity=WARNING, area="kernel")
def clock_source_slow(settings: HostSettings) -> Iterator[Finding]:
    """The kernel reads the time from a fast clock.

    ## Why it matters
    Reading a clock of the chipset takes a microsecond in place of 20 nanoseconds, and only one processor can do it at a
    time. Profilers, NCCL and data loaders read the time all the time.

    ## What to do
    On {host}: `dmesg | grep -iE 'tsc|clocksource'` has the reason why the kernel gave up the processor's clock (TSC):
    often an old firmware. Update it; or, if the machine is known to be sound, start the kernel with tsc=reliable: `if
    command -v grubby; then grubby --update-kernel=ALL --args=tsc=reliable; else sed -i
    's/^GRUB_CMDLINE_LINUX="/&tsc=reliable /' /etc/default/grub && update-grub; fi`, then `reboot`.

    ## Source
    Linux, /sys/devices/system/clocksource/clocksource0/current_clocksource; Red Hat, Managing system clocks to satisfy
    application needs. tsc, arch_sys_counter and the clocks of hypervisors are fast. Laptops are left out.
    """
    if settings.is_portable or not settings.clock_source:
        raise Skip("this is a laptop, or the kernel shows no clock source")
    if settings.clock_source in SLOW:
        yield Finding(
            "the kernel's clock source is {observed}; available are {available}",
            observed=settings.clock_source,
            available=list(settings.clock_sources),
            setting="the clock source",
            expected="tsc",
        )
