"""The HTML report in a real Chromium: what it draws, that it runs nothing foreign, keyboard, print, accessibility.

Screenshots go to the folder that ``DOCTOR_SCREENSHOTS`` names, else to the test's own. The rules of axe-core are
fetched with npm by the test that uses them (``--full``; it needs npm and the network).
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from doctor.engine.catalog import load_checks
from doctor.engine.exit_code import exit_code
from doctor.engine.result import Finding, Outcome, Report, Severity
from doctor.report.formats.registry import RenderContext, render_bytes
from tests.diagnose.test_command import LOGS, run
from tests.report import pictured_reports, recorded_fleets, reports
from tests.report.chromium import Browser, Page, chromium
from tests.report.test_formats import large

AXE = "axe-core@4.10.3"
AXE_RUN = "axe.run(document, {resultTypes: ['violations']}).then((all) => JSON.stringify(all.violations))"
PAGES = {**{check.name: check for check in load_checks()}, **reports.PAGES}
REPORTS = {
    "pictured": pictured_reports.pictured,
    "evil": pictured_reports.evil,
    "healthy": reports.healthy,
    "cpu_fleet": lambda: recorded_fleets.report("cpu_fleet"),
    "npu_fleet": lambda: recorded_fleets.report("npu_fleet"),
    "smoke_hang": reports.smoke_hang,
}
LOOKS = ((1280, "light"), (1280, "dark"), (400, "light"), (400, "dark"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


def written(folder: Path, report: Report, name: str = "report") -> str:
    """The page as a file; its address."""
    path = folder / f"{name}.html"
    path.write_bytes(render_bytes("html", report, RenderContext(int(exit_code(report)), PAGES)))
    return path.as_uri()


def opened(browser: Browser, folder: Path, report: Report, **look: object) -> Page:
    page = browser.page()
    page.open(written(folder, report), **look)  # type: ignore[arg-type]
    return page


def width_beyond(page: Page) -> int:
    """Pixels by which the page is wider than its window."""
    return int(page.value("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


def test_a_report_full_of_markup_runs_nothing_and_breaks_nothing(browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, tmp_path, pictured_reports.evil())
    page.value("document.querySelectorAll('details').forEach((one) => { one.open = true })")
    for selector in (".grid td", ".path-map select", "article p"):
        page.value(
            f"document.querySelectorAll('{selector}').forEach((one) => ['mouseover', 'focusin', 'click', 'change']"
            ".forEach((kind) => one.dispatchEvent(new Event(kind, {bubbles: true}))))"
        )
    assert page.value("typeof window.broken") == "undefined"
    assert page.faults == []
    assert page.value("document.querySelectorAll('script').length") == 2
    assert page.value("document.querySelector('#check-grid table.grid') !== null")


def test_what_gets_into_the_page_by_a_fault_is_stopped_by_its_policy(browser: Browser, tmp_path: Path) -> None:
    """The proof that `Page.faults` tells of violations: the other tests rest on it."""
    address = written(tmp_path, reports.small())
    path = tmp_path / "report.html"
    text = path.read_text().replace(
        "</main>", "<p onclick='window.broken=1'>x</p><script>window.broken=2</script></main>"
    )
    path.write_text(text.replace("</main>", "<img src='https://192.0.2.1/x.png'></main>"))
    page = browser.page()
    page.open(address)
    page.value("document.querySelector('p[onclick]').click()")
    page.value("1")
    assert page.value("typeof window.broken") == "undefined"
    assert len([fault for fault in page.faults if "Content Security Policy" in fault]) >= 3


@pytest.mark.full
@pytest.mark.parametrize("kind", REPORTS)
def test_it_is_drawn_at_every_width_and_in_both_schemes(kind: str, browser: Browser, tmp_path: Path) -> None:
    shots = Path(os.environ.get("DOCTOR_SCREENSHOTS") or tmp_path)
    page = browser.page()
    address = written(tmp_path, REPORTS[kind]())
    colours = set()
    for width, scheme in LOOKS:
        page.open(address, width, 900, scheme)
        page.screenshot(shots / f"{kind}-{width}-{scheme}.png")
        assert width_beyond(page) == 0, (width, scheme)
        colours.add((scheme, page.value("getComputedStyle(document.body).backgroundColor")))
    assert len(colours) == 2
    assert page.faults == []
    page.value("document.documentElement.dataset.theme = 'dark'; window.printed = '';")
    page.value("addEventListener('beforeprint', () => { printed = document.documentElement.dataset.theme })")
    assert page.pdf().startswith(b"%PDF")
    assert page.value("[printed, document.documentElement.dataset.theme].join()") == "light,dark"


def of_64_hosts() -> Report:
    """Ten findings, five of them warnings, each on many hosts with names of a usual length."""
    hosts = tuple(f"gpu-rack{number // 8:02d}-node{number % 8:02d}" for number in range(64))
    severities = {name: check.severity for name, check in PAGES.items() if name not in reports.SMOKE}
    errors = [name for name, severity in sorted(severities.items()) if severity is Severity.ERROR]
    warnings = [name for name, severity in sorted(severities.items()) if severity is Severity.WARNING]
    outcomes = []
    for place, name in enumerate([*errors[5:10], *warnings[5:10]]):
        finding = Finding("{n} of 8 devices answer; expected {m}", hosts=hosts[place::3], n=place, m=8)
        check = PAGES[name]
        outcomes.append(Outcome(name, check.severity, check.area, check.claim, (finding,), hosts, complete=True))
    return reports.report(*outcomes, hosts=hosts)


@pytest.mark.full
def test_a_phone_shows_64_hosts_with_ten_findings_on_three_screens_before_their_details(
    browser: Browser, tmp_path: Path
) -> None:
    """Below the table each warning is its message alone until it is opened; the contents stay in sight."""
    page, address = browser.page(), written(tmp_path, of_64_hosts())
    page.open(address, 390, 844)
    page.screenshot(Path(os.environ.get("DOCTOR_SCREENSHOTS") or tmp_path) / "phone.png")
    assert width_beyond(page) == 0
    assert page.value("document.querySelector('article').getBoundingClientRect().top") < 3 * 844
    scrolled = "[...document.querySelectorAll('.scroll, nav ul')]"
    assert page.value(f"{scrolled}.every((one) => one.scrollWidth <= one.clientWidth)")  # no text lies beside it
    hosts = page.value("document.querySelector('.overview td:nth-child(3)').textContent")
    assert hosts.endswith("... (21/64)")
    closed = "document.querySelectorAll('.is-warn > .body:not([open])').length"
    assert [page.value(closed), page.value("document.querySelectorAll('.is-fail > .body[open]').length")] == [5, 5]
    page.value("document.querySelector('.overview tr:last-child a').click()")
    page.value("scrollTo(0, document.body.scrollHeight)")
    assert page.value("document.querySelector('nav').getBoundingClientRect().top") == 0
    assert page.value("document.getElementById('s0-9').querySelector('.body').open") is True
    page.open(f"{address}?wide", 1280, 844)
    assert page.value(closed) == 0


@pytest.mark.full
def test_a_phone_shows_whole_commands_and_lines_of_logs(browser: Browser, tmp_path: Path) -> None:
    page = browser.page()
    (tmp_path / "report.html").write_text(run(str(LOGS / "mpirun_three_times.log"), "-f", "html").stdout)
    page.open((tmp_path / "report.html").as_uri(), 390, 844)
    blocks = "[...document.querySelectorAll('.detail pre, .fix pre')]"
    assert page.value(f"{blocks}.length") >= 1
    assert page.value(f"{blocks}.every((one) => one.scrollWidth <= one.clientWidth)")
    assert width_beyond(page) == 0


@pytest.mark.full
def test_the_theme_can_be_chosen(browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, tmp_path, pictured_reports.pictured(12))
    observed = []
    for _ in range(3):
        page.value("document.getElementById('theme').click()")
        displayed = page.value("getComputedStyle(document.body).backgroundColor")
        observed.append((page.value("document.getElementById('theme').textContent"), displayed))
    assert [text for text, _ in observed] == ["Theme: light", "Theme: dark", "Theme: auto"]
    assert observed[0][1] == observed[2][1] != observed[1][1]


@pytest.mark.full
def test_a_keyboard_is_enough(browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, tmp_path, pictured_reports.pictured(12))
    page.press("Tab")
    assert page.value("document.activeElement.textContent") == "Skip to the findings"
    reached = set()
    for _ in range(120):
        page.press("Tab")
        reached.add(
            page.value(
                "document.activeElement.id || document.activeElement.dataset.at || document.activeElement.tagName"
            )
        )
        if page.value("document.activeElement.tagName") == "BODY":
            break
    assert {"theme", "print", "0,0", "CANVAS", "SELECT", "SUMMARY"} <= reached
    page.value("document.querySelector('td[tabindex=\"0\"]').focus()")
    page.press("ArrowDown")
    page.press("ArrowRight")
    assert page.value("document.activeElement.dataset.at") == "1,1"
    assert page.value("document.querySelector('.readout').textContent").startswith("link-down: ")
    assert page.value("document.querySelectorAll('td[tabindex=\"0\"]').length") == 1
    page.value("document.querySelector('canvas').focus()")
    for _ in range(6):
        page.press("ArrowRight")
    report = page.value("document.querySelector('.path-map .readout').textContent")
    assert report == "node0000 to node0007 (0 to 7): dropped (hccl 60002)"


@pytest.mark.full
def test_a_command_is_copied_as_it_stands(browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, tmp_path, recorded_fleets.report("cpu_fleet"))
    browser.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    commands = page.value(
        "[...document.querySelectorAll('button.copy')].map((one) => one.previousElementSibling.textContent.trim())"
    )
    assert any(command.startswith(("doctor fix ", "sysctl -w ")) for command in commands)
    page.value("document.querySelector('button.copy').click()")
    page.value("new Promise((done) => setTimeout(done, 200))")
    assert page.value("document.getElementById('said').textContent") == "Copied"
    assert page.value("navigator.clipboard.readText()") == commands[0]


@pytest.mark.full
def test_a_thousand_hosts_and_147_checks_are_searched_and_filtered_quickly(browser: Browser, tmp_path: Path) -> None:
    report = large()
    failed = [outcome for outcome in report.outcomes if outcome.findings and outcome.found_severity is Severity.ERROR]
    errors = (len({host for outcome in failed for finding in outcome.findings for host in finding.hosts}), len(failed))
    page = opened(browser, tmp_path, report)
    script = """(() => {
      const [hosts, checks] = document.querySelectorAll('#check-grid input[type=search]');
      const [state, area] = document.querySelectorAll('#check-grid select');
      const [notable, together] = document.querySelectorAll('#check-grid input[type=checkbox]');
      const told = [];
      const set = (control, value, kind) => {
        if (kind === 'change' && control.type === 'checkbox') control.checked = value; else control.value = value;
        const began = performance.now();
        control.dispatchEvent(new Event(kind));
        told.push([document.querySelector('#check-grid p.quiet').textContent, Math.round(performance.now() - began)]);
      };
      set(notable, false, 'change'); set(together, false, 'change'); set(hosts, 'node0007', 'input');
      set(hosts, '', 'input'); set(state, 'E', 'change'); set(area, '0', 'change'); set(checks, 'unreachable', 'input');
      told.push([String(document.querySelectorAll('.grid td').length), 0]);
      return told;
    })()"""
    event = page.value(script)
    print(event)
    texts = [text for text, _ in event]
    assert texts[1].startswith("hosts shown: 1000 of 1000; rows: 1000; checks: 147 of 147")
    assert texts[2].startswith("hosts shown: 1 of 1000; rows: 1;")
    assert texts[4].startswith(f"hosts shown: {errors[0]} of 1000;") and f"{errors[1]} of 147" in texts[4]
    assert int(texts[-1]) <= 50 * 147
    assert max(milliseconds for _, milliseconds in event) < 10_000, event
    assert page.faults == []


@pytest.mark.full
@pytest.mark.parametrize("kind", ["pictured", "cpu_fleet", "smoke_hang", "evil"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_core_finds_nothing_serious(kind: str, scheme: str, browser: Browser, tmp_path: Path, axe: str) -> None:
    page = opened(browser, tmp_path, REPORTS[kind](), scheme=scheme)
    page.value("document.querySelectorAll('details').forEach((one) => { one.open = true })")
    page.value(f"{axe}\n;1")
    document = json.loads(page.value(AXE_RUN))
    serious = [
        (entry["id"], entry["impact"], [node["html"][:200] for node in entry["nodes"]][:3])
        for entry in document
        if entry["impact"] in ("serious", "critical")
    ]
    assert serious == []
    assert document == [], [(entry["id"], entry["impact"]) for entry in document]


@pytest.mark.full
def test_axe_core_ends_on_a_thousand_hosts_that_all_differ(browser: Browser, tmp_path: Path, axe: str) -> None:
    """Also with a row for each host and a column for each check; the browser's answer has a limit of its own."""
    page = opened(browser, tmp_path, pictured_reports.crowded())
    page.value("document.querySelectorAll('details').forEach((one) => { one.open = true })")
    page.value(
        "document.querySelectorAll('#check-grid input[type=checkbox]')"
        ".forEach((one) => { one.checked = false; one.dispatchEvent(new Event('change')) })"
    )
    assert page.value("document.getElementsByTagName('*').length") < 30_000
    page.value(f"{axe}\n;1")
    assert page.value(AXE_RUN) == "[]"
    assert page.faults == []


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The rules, out of the package that npm fetches."""
    folder = tmp_path_factory.mktemp("axe")
    command = ["npm", "pack", AXE, "--silent", "--pack-destination", str(folder)]
    subprocess.run(command, cwd=folder, check=True, timeout=100, capture_output=True)
    (archive,) = folder.glob("*.tgz")
    subprocess.run(["tar", "-xzf", archive.name], cwd=folder, check=True, timeout=100)
    return (folder / "package" / "axe.min.js").read_text("utf-8")
