"""The same program as a wheel, as an editable install, from a bare clone, and beside folders of the same names."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from doctor.engine.toml_compat import loads
from doctor.remote.bootstrap import joined_modules

pytestmark = pytest.mark.every

ROOT = Path(__file__).resolve().parents[1]
COUNT = len(list((ROOT / "checks").glob("[a-z]*.py")))
PLAYBOOKS = sorted(path.stem.replace("_", "-") for path in (ROOT / "playbooks").glob("*.toml"))


def listed(argv: list[str], cwd: Path) -> int:
    """How many checks `doctor list` names, run like this from there."""
    done = subprocess.run([*argv, "list"], cwd=cwd, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return sum(line.startswith("  ") for line in done.stdout.splitlines())


def playbooks(argv: list[str], cwd: Path) -> list[str]:
    """The playbooks that `doctor list --playbooks` names, run like this from there."""
    done = subprocess.run([*argv, "list", "--playbooks"], cwd=cwd, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return [line.split()[0] for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of somebody else, with a `checks` and a `playbooks` folder of its own."""
    folder = tmp_path_factory.mktemp("elsewhere")
    for name in ("checks", "playbooks"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("raise SystemExit('not ours')\n")
        (folder / name / "trap.py").write_text("raise SystemExit('not ours')\n")
    return folder


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the files, as git would check them out."""
    folder = tmp_path_factory.mktemp("clone") / "cluster-doctor"
    names = ("doctor", "checks", "playbooks", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md")
    for name in names:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            folder.mkdir(exist_ok=True)
            shutil.copy(source, folder / name)
    return folder


@pytest.fixture(scope="module")
def wheel(clone: Path) -> Iterator[Path]:
    """Built without a network: hatchling is among the test packages."""
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(clone.parent), str(clone)],
        check=True,
        capture_output=True,
        timeout=100,
    )
    (path,) = clone.parent.glob("*.whl")
    yield path


def environment(folder: Path) -> Path:
    """A virtual environment that sees the packages of this one; its python."""
    venv.create(folder, with_pip=False)
    site = next((folder / "lib").glob("python3*")) / "site-packages"
    here = [path for path in sys.path if path.endswith("site-packages")]
    (site / "packages.pth").write_text("\n".join(here) + "\n")
    return folder / "bin" / "python"


JOBS = {"torch", "numpy"}
"""Imported in the interpreter of the job alone."""
OF_DEPENDENCIES = {"markupsafe", "invoke"}
"""Jinja2 requires the one; the other is kept out of paramiko."""


@pytest.mark.every
def test_what_it_imports_is_declared() -> None:
    """The environment of the tests has more packages than `pip install` brings."""
    project = loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    declared = {re.split(r"[^\w.-]", text)[0].lower().replace("_", "-") for text in project["dependencies"]}
    installed = packages_distributions()
    imported = {
        name.partition(".")[0]
        for path in (*(ROOT / "doctor").rglob("*.py"), *(ROOT / "checks").glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        for name in _imported(node)
    } - {*sys.stdlib_module_names, *JOBS, *OF_DEPENDENCIES, "doctor", "tomli"}
    owners = {name: {owner.lower().replace("_", "-") for owner in installed.get(name, [])} for name in imported}
    assert {name for name, owner in owners.items() if not owner & declared} == set()


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []


def test_a_bare_clone_runs(clone: Path) -> None:
    assert listed([sys.executable, "-m", "doctor"], clone) == COUNT
    assert playbooks([sys.executable, "-m", "doctor"], clone) == PLAYBOOKS


def test_the_wheel_holds_checks_and_playbooks_inside_the_package_and_claims_no_other_name(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"doctor", "cluster_doctor"}
    assert sum(name.startswith("doctor/checks/") and name.endswith(".py") for name in names) == COUNT
    assert sum(name.startswith("doctor/playbooks/") and name.endswith(".toml") for name in names) == len(PLAYBOOKS)
    assert not any("__pycache__" in name for name in names)


def test_the_wheel_holds_the_programs_that_are_sent_to_hosts(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    modules = joined_modules("doctor.smoke.programs.agent.agent", "doctor.smoke.programs.worker.stage_native")
    assert {f"{module.replace('.', '/')}.py" for module in modules} <= set(names)


def test_the_wheel_holds_a_command_that_installers_make_executable(wheel: Path) -> None:
    """They replace `#!python` by their interpreter, and `pip` keeps the mode of the file."""
    with zipfile.ZipFile(wheel) as archive:
        (command,) = [entry for entry in archive.infolist() if entry.filename.endswith(".data/scripts/doctor")]
        assert archive.read(command).startswith(b"#!python\n")
    assert command.external_attr >> 16 & 0o111 == 0o111


def test_the_wheel_holds_the_pages_of_the_documentation(wheel: Path, tmp_path: Path) -> None:
    files = (path for path in (ROOT / "doctor" / "docs").rglob("*") if path.is_file())
    pages = {str(path.relative_to(ROOT)) for path in files}
    archive = zipfile.ZipFile(wheel)
    assert pages and {name for name in archive.namelist() if name.startswith("doctor/docs/")} == pages
    archive.extractall(tmp_path)
    argv = [sys.executable, "-m", "doctor", "explain", "job-scripts"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.stdout.startswith("Job scripts\n==="), done.stderr


def test_the_wheel_runs_even_beside_folders_of_the_same_names(wheel: Path, elsewhere: Path, tmp_path: Path) -> None:
    python = environment(tmp_path / "venv")
    site = next((tmp_path / "venv" / "lib").glob("python3*")) / "site-packages"
    zipfile.ZipFile(wheel).extractall(site)
    (site / "packages.pth").unlink()
    packages = [path for path in sys.path if path.endswith("site-packages")]
    (site / "packages.pth").write_text("\n".join(packages) + "\n")
    done = subprocess.run(
        [str(python), "-c", "import doctor; print(doctor.__file__)"], cwd=elsewhere, capture_output=True, text=True
    )
    assert done.stdout.startswith(str(site))
    assert listed([str(python), "-m", "doctor"], elsewhere) == COUNT
    assert playbooks([str(python), "-m", "doctor"], elsewhere) == PLAYBOOKS


def test_an_editable_install_runs_even_beside_folders_of_the_same_names(
    clone: Path, elsewhere: Path, tmp_path: Path
) -> None:
    target = tmp_path / "venv"
    python = environment(target)
    site = next((target / "lib").glob("python3*")) / "site-packages"
    code = "import hatchling.build, os, sys; os.chdir(sys.argv[1]);print(hatchling.build.build_editable(sys.argv[2]))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(clone), str(tmp_path)], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    zipfile.ZipFile(tmp_path / done.stdout.split()[-1]).extractall(site)
    # The package's own .pth must come before this environment's, where doctor may be installed as well.
    (site / "packages.pth").rename(site / "zz_packages.pth")
    done = subprocess.run(
        [str(python), "-c", "import doctor; print(doctor.__file__)"], cwd=elsewhere, capture_output=True, text=True
    )
    assert done.stdout.startswith(str(clone))
    assert listed([str(python), "-m", "doctor"], elsewhere) == COUNT
    assert playbooks([str(python), "-m", "doctor"], elsewhere) == PLAYBOOKS
