"""Wheel and sdist hold the tree, and the wheel works in an empty folder with its declared requirements."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from dataclasses import dataclass
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from topo.version import __version__

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"topo": "topo", "cli": "topo_cli"}
BUILD_ONLY = {".pyx", ".pxd", ".c", ".so"}
"""Suffixes of what an extension module is built from, and of those built for the checkout."""
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
COMPILED = {f"topo/hot/compiled/{path.stem}{SUFFIX}" for path in (ROOT / "topo/hot/compiled").glob("*.pyx")}
CLIENTS = {
    "topo.connectors.delta": "deltalake",
    "topo.connectors.http": "aiohttp",
    "topo.connectors.iceberg": "pyiceberg",
    "topo.connectors.kafka": "confluent_kafka",
    "topo.connectors.mqtt": "paho",
    "topo.connectors.nats": "nats",
    "topo.connectors.postgres": "psycopg",
    "topo.connectors.rabbitmq": "pika",
    "topo.connectors.redis": "redis",
    "topo.ui.app": "starlette",
}
"""Packages, and modules, that need what an extra installs."""
PER_TUPLE_PATH = "from topo_cli.doctor import _hot_path; print(*_hot_path(None))"
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@dataclass(frozen=True)
class Built:
    wheel: Path
    sdist: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Wheel and sdist of a copy of the tree, so that no build folder is left in the checkout."""
    copy = tmp_path_factory.mktemp("tree")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.c", "*.so"))
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    backend = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    checked(sys.executable, "-c", backend, copy / "dist", cwd=copy)
    return Built(wheel_of(copy, copy / "dist"), next((copy / "dist").glob("*.tar.gz")))


def wheel_of(source: Path, out: Path, **environment: str) -> Path:
    """Builds a wheel; its extension modules are compiled as quickly as can be."""
    arguments = ("wheel", "--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", out, source)
    pip(sys.executable, *arguments, **{"CFLAGS": "-O0", **environment})
    return next(out.glob("*.whl"))


def pip(python: str | Path, *arguments: str | Path, **environment: str) -> None:
    """Runs this environment's pip for the environment of `python`."""
    checked(sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", *arguments, **environment)


def checked(*command: str | Path, cwd: Path | None = None, **environment: str) -> str:
    """Runs a command without the settings of the process that runs the tests and returns its output."""
    ours = ("PYTHON", "PYTEST", "VIRTUAL_ENV", "TOPO_")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)} | environment
    done = subprocess.run(command, cwd=cwd, env=clean, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def files_of_the_tree() -> set[str]:
    """Every file of both packages by the name under which it is installed, but extension modules."""
    found = ((name, path) for name in PACKAGES for path in (ROOT / name).rglob("*") if path.is_file())
    names = {
        f"{PACKAGES[name]}/{path.relative_to(ROOT / name).as_posix()}"
        for name, path in found
        if "__pycache__" not in path.parts and path.suffix not in BUILD_ONLY
    }
    return names - {"topo_cli/bin/topo"} | {f"topo_engine-{__version__}.data/scripts/topo"}


def files_of_a_wheel(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


@needs_compiler
def test_the_wheel_holds_the_files_of_the_tree_and_the_extension_modules(built: Built) -> None:
    assert files_of_a_wheel(built.wheel) == files_of_the_tree() | COMPILED


@pytest.fixture
def unpacked(built: Built, tmp_path: Path) -> Path:
    """The source distribution, unpacked."""
    with tarfile.open(built.sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / f"topo_engine-{__version__}"


@needs_compiler
def test_a_wheel_built_from_the_sdist_without_cython_holds_the_same_files(unpacked: Path, tmp_path: Path) -> None:
    hidden = tmp_path / "without" / "Cython"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError('there is no Cython')")

    wheel = wheel_of(unpacked, tmp_path, PYTHONPATH=str(hidden.parent), TOPO_REQUIRE_COMPILED="1")

    assert files_of_a_wheel(wheel) == files_of_the_tree() | COMPILED


def test_c_that_is_older_than_its_sources_is_not_compiled(unpacked: Path, tmp_path: Path) -> None:
    hidden = tmp_path / "without" / "Cython"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError('there is no Cython')")
    declarations = unpacked / "topo/hot/compiled/table.pxd"
    later = (declarations.with_name("acks.c")).stat().st_mtime + 10
    os.utime(declarations, (later, later))

    with pytest.raises(AssertionError, match=r"acks\.c is older than its sources, and there is no Cython"):
        wheel_of(unpacked, tmp_path, PYTHONPATH=str(hidden.parent), TOPO_REQUIRE_COMPILED="1")


def test_without_a_compiler_the_wheel_holds_python_alone_and_runs(unpacked: Path, tmp_path: Path) -> None:
    wheel = wheel_of(unpacked, tmp_path, CC="/nowhere/cc")

    assert files_of_a_wheel(wheel) == files_of_the_tree()
    environment = InstalledWheel(tmp_path / "environment", wheel)
    assert checked(environment.scripts / "python", "-c", "from topo.hot import KIND; print(KIND)", cwd=tmp_path) == "plain\n"
    advice = checked(environment.scripts / "python", "-c", PER_TUPLE_PATH, cwd=tmp_path)
    assert advice.startswith("warning plain Python") and "install a C compiler" in advice


def test_without_a_compiler_there_is_no_wheel_that_has_to_be_compiled(unpacked: Path, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="/nowhere/cc"):
        wheel_of(unpacked, tmp_path, CC="/nowhere/cc", TOPO_REQUIRE_COMPILED="1")


def test_a_pure_wheel_is_for_any_platform(unpacked: Path, tmp_path: Path) -> None:
    wheel = wheel_of(unpacked, tmp_path, TOPO_PURE="1")

    assert wheel.name.endswith("-py3-none-any.whl")
    assert files_of_a_wheel(wheel) == files_of_the_tree()
    environment = InstalledWheel(tmp_path / "environment", wheel)
    found = checked(environment.scripts / "python", "-c", PER_TUPLE_PATH, cwd=tmp_path)
    assert found.startswith("ok plain Python: the installed package was built without the compiled path, as by TOPO_PURE=1. ")
    assert found.endswith("then pip install --force-reinstall --no-deps path/to/the/checkout\n")


def test_a_checkout_is_advised_by_how_it_was_installed(unpacked: Path, tmp_path: Path) -> None:
    """The setuptools of the tests build it; the installation stays apart from them."""
    venv.create(tmp_path / "environment", symlinks=True)
    python = tmp_path / "environment" / "bin" / "python"
    places = {"base": str(tmp_path / "environment"), "platbase": str(tmp_path / "environment")}
    packages = Path(sysconfig.get_path("purelib", scheme="venv", vars=places))
    (packages / "tests.pth").write_text(sysconfig.get_path("purelib"))

    def advice(**environment: str) -> str:
        pip(python, "install", "--no-index", "--no-deps", "--no-build-isolation", "-e", unpacked, **environment)
        return checked(python, "-c", PER_TUPLE_PATH, cwd=tmp_path)

    fix = f"install a C compiler if there is none, then pip install --no-deps -e {unpacked}\n"
    chosen = "ok plain Python: the installed checkout was built without the compiled path, as by TOPO_PURE=1. To compile it, "
    assert advice(TOPO_PURE="1") == chosen + fix
    (tmp_path / "environment" / "compiled.stamp").write_text("")
    tried = checked(python, "-c", PER_TUPLE_PATH, cwd=tmp_path)
    (tmp_path / "environment" / "compiled.stamp").unlink()
    failed = advice(CC="/nowhere/cc")
    for found in (tried, failed):
        assert found.startswith("warning plain Python (No module named") and found.endswith(fix)


def test_the_wheel_carries_the_version_the_licence_and_the_type_marker(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(f"topo_engine-{__version__}.dist-info/METADATA").decode()

    assert f"\nVersion: {__version__}\n" in metadata
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    assert f"topo_engine-{__version__}.dist-info/licenses/LICENSE" in names
    assert "topo/py.typed" in names


class InstalledWheel:
    """An environment that holds the wheel, its declared requirements, and nothing else."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        venv.create(folder, symlinks=True)
        self.scripts = folder / "bin"
        places = {"base": str(folder), "platbase": str(folder)}
        self.packages = Path(sysconfig.get_path("purelib", scheme="venv", vars=places))
        pip(self.scripts / "python", "install", "--no-index", "--no-deps", wheel)
        self.bring_dependencies_of(PathDistribution(next(self.packages.glob("topo_engine-*.dist-info"))))

    def bring(self, name: str) -> None:
        """Copies a package of the environment that runs the tests, and its requirements; scripts are left out."""
        package = distribution(name)
        for file in package.files or ():
            target = self.packages / file
            if ".." not in file.parts and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(str(package.locate_file(file)), target)
        self.bring_dependencies_of(package)

    def bring_dependencies_of(self, package: Distribution) -> None:
        for line in package.requires or ():
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                self.bring(requirement.name)


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> InstalledWheel:
    return InstalledWheel(tmp_path_factory.mktemp("wheel"), built.wheel)


@needs_compiler
def test_the_installed_wheel_runs_the_compiled_path(installed: InstalledWheel, tmp_path: Path) -> None:
    assert checked(installed.scripts / "python", "-c", "from topo.hot import KIND; print(KIND)", cwd=tmp_path) == "compiled\n"


def test_topo_version_from_the_wheel_names_the_version(installed: InstalledWheel, tmp_path: Path) -> None:
    assert __version__ in checked(installed.scripts / "topo", "version", cwd=tmp_path)


def test_every_module_can_be_imported_with_the_declared_dependencies_alone(installed: InstalledWheel, tmp_path: Path) -> None:
    import_all = """
import importlib, pkgutil, topo, topo_cli

for package in (topo, topo_cli):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if module.name.endswith("__main__"):
            continue
        try:
            print(importlib.import_module(module.name).__name__)
        except topo.UserError as error:
            # `topo metrics` and `topo trace` name what to install.
            if module.name not in ("topo.operate.prometheus", "topo.operate.otlp"):
                raise
        except ModuleNotFoundError as error:
            # Bridges to Spark are for users with that extra, connectors for those with the client, Arrow columns and parquet for
            # those with pyarrow, contracts for users whose tests run in pytest.
            if CLIENTS.get(".".join(module.name.split(".")[:3])) == error.name:
                continue
            needs_spark = module.name.startswith("topo.spark.") and error.name in ("pyarrow", "pyspark")
            needs_arrow = error.name == "pyarrow" and module.name in (
                "topo.api.arrow_values",
                "topo.connectors.column_classes",
                "topo.connectors.delta.log",
                "topo.connectors.delta.target_schema",
                "topo.connectors.iceberg.table",
                "topo.connectors.iceberg.target",
                "topo.connectors.parquet_file",
                "topo.connectors.store_files",
                "topo.connectors.type_names",
            )
            if not needs_spark and not needs_arrow and (module.name, error.name) != ("topo.testing.contracts", "pytest"):
                raise
"""

    imported = checked(installed.scripts / "python", "-c", f"CLIENTS = {CLIENTS}\n{import_all}", cwd=tmp_path).split()
    assert {"topo.version", "topo.spark"} <= set(imported)


def test_topo_init_from_the_wheel_writes_a_project_whose_test_passes(installed: InstalledWheel, tmp_path: Path) -> None:
    checked(installed.scripts / "topo", "init", "first", cwd=tmp_path)
    installed.bring("pytest")

    summary = checked(installed.scripts / "python", "-m", "pytest", "-p", "no:cacheprovider", cwd=tmp_path / "first")

    assert " passed" in summary.splitlines()[-1]
