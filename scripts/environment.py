"""Builds .venv, the environment that every make target uses: topo from this checkout, its dependencies, extras on request.

What can be half done never looks whole: the environment is built beside its place and renamed when it is complete, and one
stamp for each extra is written last. The stamps hold a digest of what the environment was built from, so a change of
pyproject.toml, constraints.txt, the interpreter or the place of the checkout builds it anew, and nothing else does.

The compiled modules of the per-tuple path lie in the checkout, beside their sources, and have a stamp of their own. Where Cython
or a C compiler is missing, topo runs in Python. Modules of older sources are removed first. Set-up compiles again when Cython,
the compiler or the sources change, or when TOPO_REQUIRE_COMPILED is set.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import compress
from operator import not_
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / os.environ.get("TOPO_VENV", ".venv")
"""The variable TOPO_VENV names another place, for another interpreter beside the first: .venv.3.13, for instance."""
LOCK = ROOT / ".venv.lock"
INPUTS = ("pyproject.toml", "setup.py", "constraints.txt", "scripts/environment.py")
RUNTIME = "runtime"
COMPILED = "compiled"
SOURCES = ROOT / "topo" / "hot" / "compiled"
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
IS_REQUIRED = bool(os.environ.get("TOPO_REQUIRE_COMPILED"))
"""Whether it is an error that the per-tuple path cannot be compiled."""
IS_OLDEST = bool(os.environ.get("TOPO_OLDEST"))
"""Whether to install the oldest versions that pyproject.toml accepts."""
VERSIONS = () if IS_OLDEST else ("-c", "constraints.txt")


class SetupFailed(Exception):
    """The environment could not be built; the message is one line that names the fix."""


def digest(part: str) -> str:
    """What `part` of an environment built now would be made from."""
    parts = [sys.version, sys.base_prefix, str(ROOT), *VERSIONS, *((ROOT / name).read_text() for name in INPUTS)]
    if part == COMPILED:
        parts += [str(compiler()), *(source.read_text() for source in sorted(SOURCES.glob("*.p[yx][xd]")))]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def compiler() -> str | None:
    """Where the C compiler is that setuptools would call."""
    return shutil.which(os.environ.get("CC", sysconfig.get_config_var("CC") or "cc").split()[0])


def is_whole(part: str) -> bool:
    """Whether .venv holds `part` (the runtime, the compiled path or an extra) as it would be built now."""
    stamp = VENV / f"{part}.stamp"
    if not ((VENV / "bin" / "python").exists() and stamp.is_file()):
        return False
    made_from, _, plain_because = stamp.read_text().partition("\n")
    if made_from != digest(part):
        return False
    if plain_because:
        return not IS_REQUIRED
    return part != COMPILED or all(source.with_suffix(SUFFIX).exists() for source in SOURCES.glob("*.pyx"))


def write_stamp(environment: Path, part: str, plain_because: str = "") -> None:
    """Notes what a part was made from; for the compiled path also why it was not compiled."""
    (environment / f"{part}.stamp").write_text("\n".join(filter(None, (digest(part), plain_because))))


@contextmanager
def exclusive() -> Iterator[None]:
    """One builder at a time for this checkout; the lock goes with the process that holds it."""
    with LOCK.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another make that is setting up {VENV.name}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def say(line: str) -> None:
    print(f"topo: {line}", file=sys.stderr, flush=True)


def complaint_of(command: list[str], **environment: str) -> str | None:
    """Runs a command; None when it succeeded, else the last line that it printed."""
    settings = {**os.environ, **environment}
    done = subprocess.run(command, cwd=ROOT, env=settings, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None
    return f"{done.stdout}\n{done.stderr}".strip().rpartition("\n")[2] or f"exit code {done.returncode}"


def has_module(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def create(environment: Path) -> None:
    """Makes a virtual environment that has pip and nothing else, by the first way that works on this machine.

    Raises:
        SetupFailed: no way works; names the package to install.
    """
    python, folder, inside = sys.executable, str(environment), str(environment / "bin" / "python")
    uv = shutil.which("uv")
    ways: list[tuple[bool, list[list[str]]]] = [
        (has_module("ensurepip"), [[python, "-m", "venv", folder]]),
        (has_module("virtualenv"), [[python, "-m", "virtualenv", folder]]),
        (uv is not None, [[uv or "", "venv", "--seed", "--python", python, folder]]),
        (
            has_module("pip"),
            [[python, "-m", "venv", "--without-pip", folder], [python, "-m", "pip", "--python", inside, "install", "pip"]],
        ),
    ]
    reason: str | None = "it has no ensurepip"
    for available, commands in ways:
        if available:
            reason = next(filter(None, map(complaint_of, [*commands, [inside, "-m", "pip", "--version"]])), None)
            if reason is None:
                return
            shutil.rmtree(environment, ignore_errors=True)
    package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
    raise SetupFailed(f"{python} cannot make a virtual environment ({reason}); install {package}, virtualenv or uv")


def install(environment: Path, *arguments: str) -> None:
    """Runs pip inside an environment.

    Raises:
        SetupFailed: pip could not do it and has said why.
    """
    pip = [str(environment / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input"]
    # setuptools warns at every editable install, as a warning to its own users. An editable install compiles nothing: Cython
    # comes after it, and the compiled path lies in the checkout.
    settings = {**os.environ, "PYTHONWARNINGS": "ignore", "TOPO_PURE": "1"}
    command = [*pip, "install", "--quiet", *arguments]
    if subprocess.run(command, cwd=ROOT, env=settings, stdin=subprocess.DEVNULL, check=False).returncode != 0:
        raise SetupFailed("some packages could not be installed (see above); the first set-up needs a package index")


def requirements(part: str) -> list[str]:
    """What pyproject.toml asks for.

    Raises:
        SetupFailed: there is no such extra.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    builders = project["build-system"]["requires"]
    if part in (RUNTIME, COMPILED):
        is_cython = [builder.startswith("cython") for builder in builders]
        if part == COMPILED:
            return list(compress(builders, is_cython))
        return [*map(at_its_version, project["project"]["dependencies"]), *compress(builders, map(not_, is_cython))]
    extras = project["project"]["optional-dependencies"]
    if part not in extras:
        raise SetupFailed(f"there is no extra {part!r}; there are {', '.join(sorted(extras))}")
    return list(map(at_its_version, extras[part]))


def at_its_version(requirement: str) -> str:
    """Returns a requirement, which with IS_OLDEST takes the oldest version only."""
    return re.sub(r">=([\d.]+).*", r"==\1", requirement) if IS_OLDEST else requirement


def relocate(built: Path, place: Path) -> None:
    """Makes the scripts and the configuration of an environment name the place that it is about to be renamed to."""
    for file in (built / "pyvenv.cfg", *(built / "bin").iterdir()):
        if file.is_file() and not file.is_symlink():
            content = file.read_bytes()
            moved = content.replace(os.fsencode(built), os.fsencode(place))
            if moved != content:
                file.write_bytes(moved)


def build() -> None:
    """Puts a new .venv with the runtime dependencies and topo (editable) in place of the old one."""
    for leftover in ROOT.glob(".venv.new.*"):
        shutil.rmtree(leftover)
    say(f"setting up {VENV.name} (once; later runs need no network)")
    # In a folder of its own: beside a pyproject.toml some tools leave a file .venv that points at what they made (PEP 832).
    workshop = ROOT / f".venv.new.{os.getpid()}"
    workshop.mkdir()
    fresh = workshop / VENV.name
    try:
        create(fresh)
        install(fresh, *VERSIONS, *requirements(RUNTIME))
        install(fresh, "--no-deps", "--no-build-isolation", "-e", ".")
        relocate(fresh, VENV)
        write_stamp(fresh, RUNTIME)
        discard_old(workshop / "old")
        fresh.rename(VENV)
    finally:
        shutil.rmtree(workshop, ignore_errors=True)


def discard_old(aside_for_ours: Path) -> None:
    """Clears the place. An environment that make did not build is kept beside it."""
    if (VENV / f"{RUNTIME}.stamp").exists() and not VENV.is_symlink():
        VENV.rename(aside_for_ours)
    elif VENV.exists() or VENV.is_symlink():
        aside = VENV.rename(ROOT / f".venv.kept.{os.getpid()}")
        say(f"the .venv that was here is not from make; it is now {aside.name}")


def add(extra: str) -> None:
    """Adds an extra to .venv in place: only what is missing, so a topology that runs from it is not disturbed."""
    wanted = requirements(extra)
    say(f"adding the extra {extra!r} to {VENV.name}")
    install(VENV, *VERSIONS, *wanted)
    write_stamp(VENV, extra)


def compile_path() -> None:
    """Compile the per-tuple path in the checkout, or say in one line why it runs in Python.

    Raises:
        SetupFailed: it must be compiled, and cannot be.
    """
    say("compiling the per-tuple path")
    python = str(VENV / "bin" / "python")
    pip = [python, "-m", "pip", "--disable-pip-version-check"]
    cython = [*pip, "install", "--quiet", "-c", "constraints.txt", *requirements(COMPILED)]
    extensions = [python, "setup.py", "--quiet", "build_ext", "--inplace", f"--parallel={os.cpu_count() or 1}"]
    reason: str | None = "there is no C compiler"
    if compiler() is not None:
        reason = complaint_of(cython) or complaint_of(extensions, TOPO_REQUIRE_COMPILED="1")
    if reason is not None:
        for module in SOURCES.glob(f"*{SUFFIX}"):
            module.unlink()
        if IS_REQUIRED:
            raise SetupFailed(f"the per-tuple path must be compiled (TOPO_REQUIRE_COMPILED is set), and cannot be: {reason}")
        say(f"the per-tuple path runs in plain Python: {reason}")
    write_stamp(VENV, COMPILED, reason or "")


def main(extras: list[str]) -> int:
    steps = {RUNTIME: build, COMPILED: compile_path, **{extra: partial(add, extra) for extra in extras}}
    if os.environ.get("TOPO_PURE"):
        del steps[COMPILED]
    if all(map(is_whole, steps)):
        return 0
    try:
        with exclusive():
            for part, step in steps.items():
                if not is_whole(part):
                    step()
    except (SetupFailed, OSError) as failure:
        say(str(failure))
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
