"""The set-up behind `make run` and `make test`, tried in copies of the checkout without a network."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HIDE_MODULES = """
import importlib.util, sys
real = importlib.util.find_spec
if sys.orig_argv[1:2] == ["scripts/environment.py"]:
    hidden = ("ensurepip", "virtualenv", "pip")
    importlib.util.find_spec = lambda name, package=None: None if name in hidden else real(name, package)
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files that the set-up reads, in a folder whose path has a space."""
    copy = tmp_path / "a checkout"
    shutil.copytree(ROOT / "scripts", copy / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Makefile", "pyproject.toml", "setup.py", "constraints.txt"):
        shutil.copy(ROOT / name, copy / name)
    return copy


def run(checkout: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a command there, with no package index and the plainest PATH."""
    plain = {"PATH": "/usr/bin:/bin", "HOME": str(checkout), "PIP_NO_INDEX": "1", "PYTHON": sys.executable}
    return subprocess.run(
        command, cwd=checkout, env={**plain, **environment}, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


def compiled_module(checkout: Path) -> Path:
    """Gives the checkout a source of an extension module, and returns the module that it would be compiled to."""
    sources = checkout / "topo" / "hot" / "compiled"
    sources.mkdir(parents=True)
    (sources / "one.pyx").write_text("ONE = 1\n")
    return sources / f"one{sysconfig.get_config_var('EXT_SUFFIX')}"


def environments(checkout: Path) -> list[str]:
    return sorted(path.name for path in checkout.glob(".venv*") if path.name != ".venv.lock")


def pretend_whole(checkout: Path) -> None:
    """Leaves behind what a complete build leaves: an interpreter and the stamps."""
    (checkout / ".venv" / "bin").mkdir(parents=True)
    (checkout / ".venv" / "bin" / "python").symlink_to(sys.executable)
    pretend_stamps(checkout)


def pretend_stamps(checkout: Path) -> None:
    stamps = "import environment as e; [e.write_stamp(e.VENV, part) for part in (e.RUNTIME, e.COMPILED)]"
    plain = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(checkout / "scripts")}
    subprocess.run([sys.executable, "-c", stamps], env=plain, check=True)


@pytest.mark.parametrize("version", [(3, 10, 13), (3, 14, 0)])
def test_another_python_is_refused_in_one_line_that_names_the_fix(checkout: Path, version: tuple[int, int, int]) -> None:
    old = checkout / "old python"
    pretend = f"import sys; sys.version_info = {version}; exec(sys.argv[1])"
    old.write_text(f"#!/bin/sh\nexec '{sys.executable}' -c '{pretend}' \"$2\"\n")
    old.chmod(0o755)
    modern = checkout / "bin" / "python3.11"
    modern.parent.mkdir()
    modern.symlink_to(sys.executable)

    result = run(checkout, "make", "run", PYTHON=str(old), PATH=f"{modern.parent}:/usr/bin:/bin")

    first, *rest = result.stderr.splitlines()
    found = ".".join(map(str, version))
    assert first.startswith(f"topo needs Python 3.11, 3.12 or 3.13, and '{old}' is Python {found}; use: make PYTHON=python3")
    assert all(line.startswith("make") for line in rest)
    assert result.returncode != 0
    assert environments(checkout) == []


def test_a_python_that_does_not_exist_is_refused_in_one_line(checkout: Path) -> None:
    result = run(checkout, "sh", "scripts/setup.sh", PYTHON="/nowhere/python")

    assert result.stderr.startswith("topo needs Python 3.11, 3.12 or 3.13, and '/nowhere/python' is not a Python that runs;")
    assert len(result.stderr.splitlines()) == 1
    assert result.returncode == 1


def test_without_any_way_to_make_an_environment_the_package_to_install_is_named(checkout: Path) -> None:
    (checkout / "hidden").mkdir()
    (checkout / "hidden" / "sitecustomize.py").write_text(HIDE_MODULES)

    result = run(checkout, "sh", "scripts/setup.sh", PYTHONPATH=str(checkout / "hidden"))

    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert f"(it has no ensurepip); install python{version}-venv, virtualenv or uv" in result.stderr.splitlines()[-1]
    assert result.returncode == 1
    assert environments(checkout) == []


def test_a_failed_installation_leaves_nothing_and_clears_the_rest_of_a_killed_one(checkout: Path) -> None:
    (checkout / ".venv.new.1" / ".venv").mkdir(parents=True)

    result = run(checkout, "sh", "scripts/setup.sh", "test")

    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert result.stderr.splitlines()[-1].startswith("topo: ")
    assert environments(checkout) == []


def test_a_whole_environment_is_used_as_it_is(checkout: Path) -> None:
    pretend_whole(checkout)

    result = run(checkout, "sh", "scripts/setup.sh")

    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_an_environment_is_not_whole_after_a_change_of_what_it_was_built_from(checkout: Path, name: str) -> None:
    pretend_whole(checkout)
    with (checkout / name).open("a") as file:
        file.write("# changed\n")

    result = run(checkout, "sh", "scripts/setup.sh")

    assert "setting up .venv" in result.stderr
    assert result.returncode == 1
    assert environments(checkout) == [".venv"]


def test_without_a_compiler_the_environment_is_whole_after_one_line(checkout: Path) -> None:
    pretend_whole(checkout)

    first, second = (run(checkout, "sh", "scripts/setup.sh", CC="/nowhere/cc") for _ in range(2))

    assert first.stderr.splitlines()[1:] == ["topo: the per-tuple path runs in plain Python: there is no C compiler"]
    assert (first.returncode, second.returncode, second.stderr) == (0, 0, "")


def test_without_cython_the_environment_is_whole_after_one_line(checkout: Path) -> None:
    pretend_whole(checkout)
    (checkout / ".venv" / "compiled.stamp").unlink()

    result = run(checkout, "sh", "scripts/setup.sh")

    assert [line[:47] for line in result.stderr.splitlines()[1:]] == ["topo: the per-tuple path runs in plain Python: "]
    assert result.returncode == 0


def test_an_environment_that_has_to_be_compiled_is_refused_without_a_compiler(checkout: Path) -> None:
    pretend_whole(checkout)

    result = run(checkout, "sh", "scripts/setup.sh", CC="/nowhere/cc", TOPO_REQUIRE_COMPILED="1")

    assert result.stderr.splitlines()[-1].endswith("and cannot be: there is no C compiler")
    assert result.returncode == 1


def test_a_plain_environment_is_not_compiled(checkout: Path) -> None:
    pretend_whole(checkout)
    (checkout / ".venv" / "compiled.stamp").unlink()

    result = run(checkout, "sh", "scripts/setup.sh", TOPO_PURE="1")

    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_a_failed_compilation_leaves_no_module_of_older_sources(checkout: Path) -> None:
    module = compiled_module(checkout)
    pretend_whole(checkout)
    module.write_text("of older sources")
    other = module.with_name("one.of-another-python.so")
    other.write_text("")

    result = run(checkout, "sh", "scripts/setup.sh", CC="/nowhere/cc")

    assert "the per-tuple path runs in plain Python" in result.stderr
    assert (result.returncode, module.exists(), other.exists()) == (0, False, True)


def test_a_compiled_path_without_its_modules_is_compiled_again(checkout: Path) -> None:
    module = compiled_module(checkout)
    pretend_whole(checkout)

    missing = run(checkout, "sh", "scripts/setup.sh", PATH="/usr/bin:/bin")
    (checkout / ".venv" / "compiled.stamp").unlink()
    pretend_stamps(checkout)
    module.write_text("")
    present = run(checkout, "sh", "scripts/setup.sh")

    assert missing.stderr.splitlines()[0] == "topo: compiling the per-tuple path"
    assert (present.returncode, present.stderr) == (0, "")


def test_a_plain_path_is_tried_again_where_it_must_be_compiled_and_no_compiled_one(checkout: Path) -> None:
    pretend_whole(checkout)

    compiled = run(checkout, "sh", "scripts/setup.sh", TOPO_REQUIRE_COMPILED="1")
    (checkout / ".venv" / "compiled.stamp").unlink()
    plain = run(checkout, "sh", "scripts/setup.sh")
    required = run(checkout, "sh", "scripts/setup.sh", TOPO_REQUIRE_COMPILED="1")

    assert (compiled.returncode, compiled.stderr) == (0, "")
    assert (plain.returncode, required.returncode) == (0, 1)
    assert "and cannot be: " in required.stderr


def test_an_unknown_extra_is_refused_with_those_there_are(checkout: Path) -> None:
    pretend_whole(checkout)

    result = run(checkout, "sh", "scripts/setup.sh", "tests")

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = ", ".join(sorted(project["optional-dependencies"]))
    assert result.stderr == f"topo: there is no extra 'tests'; there are {extras}\n"
    assert result.returncode == 1


APT = """#!/bin/sh
echo "$@" >>"$HOME/asked"
case "$*" in
    *update*) touch "$HOME/new-lists" ;;
    *) [ -e "$HOME/new-lists" ] ;;
esac
"""


def test_packages_that_the_archive_has_in_newer_versions_alone_are_installed_by_new_lists(checkout: Path) -> None:
    (checkout / "bin").mkdir()
    (checkout / "bin" / "apt-get").write_text(APT)
    (checkout / "bin" / "apt-get").chmod(0o755)
    lines = (checkout / "scripts" / "servers.sh").read_text().splitlines()
    functions = [line for line in lines if line.startswith(("apt()", "packages()"))]

    for _ in range(2):
        result = run(
            checkout, "sh", "-eu", "-c", "\n".join([*functions, "packages one two"]), PATH=f"{checkout}/bin:/usr/bin:/bin"
        )
        assert (result.returncode, result.stderr) == (0, "")

    asked = [line.partition("DPkg::Lock::Timeout=300 ")[2] for line in (checkout / "asked").read_text().splitlines()]
    install = "install --no-install-recommends one two"
    assert asked == [install, "update", install, install]
