"""Packages, and the compiled per-tuple path.

The folder `cli` installs as `topo_cli`, which pyproject.toml alone cannot discover. The extension modules are optional: without
Cython or a C compiler the package is built without them, and topo runs in Python. TOPO_REQUIRE_COMPILED=1 makes that an error;
TOPO_PURE=1 builds a package for any platform. Any value but an empty one sets them.
"""

import fcntl
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

try:
    from Cython.Build import cythonize
except ImportError:
    cythonize = None

IS_REQUIRED = bool(os.environ.get("TOPO_REQUIRE_COMPILED"))
SOURCES = [] if os.environ.get("TOPO_PURE") else sorted(map(str, Path("topo/hot/compiled").glob("*.pyx")))


@contextmanager
def exclusive() -> Iterator[None]:
    """One build at a time in this folder: all of them write the C beside the sources, and below `build`."""
    Path("build").mkdir(exist_ok=True)
    with Path("build", "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def is_stale(generated: Path) -> bool:
    """Whether C is older than the Cython source beside it, or than a file of declarations that this names."""
    source = generated.with_suffix(".pyx")
    text = source.read_text()
    read = [source, *(file for file in source.parent.glob("*.pxd") if f".{file.stem} cimport" in text)]
    return generated.stat().st_mtime < max(file.stat().st_mtime for file in read)


class BuildCompiled(build_ext):
    """Compiles all of the extension modules, as many at a time as --parallel says, or says in one line that there are none."""

    def run(self) -> None:
        """Build, and copy what was built, while no other process does."""
        with exclusive():
            super().run()

    def build_extensions(self) -> None:
        """Build all modules. Without Cython the C must be there, and must not be older than its sources."""
        try:
            for extension in self.extensions:
                # One after the other: Cython does not promise to work in threads, the C compiler is a process.
                if cythonize is not None:
                    extension.sources = cythonize([extension], quiet=True)[0].sources
                elif (generated := Path(extension.sources[0]).with_suffix(".c")).exists() and is_stale(generated):
                    raise RuntimeError(f"{generated} is older than its sources, and there is no Cython")
            with ThreadPoolExecutor(self.parallel or 1) as pool:
                list(pool.map(self.build_extension, self.extensions))
        except Exception as error:
            if IS_REQUIRED:
                raise
            print(f"topo: the per-tuple path stays in Python: {error}", file=sys.stderr)


class SourceDistribution(sdist):
    """Adds the C that Cython generates: an installation with --no-build-isolation needs no Cython."""

    def run(self) -> None:
        """Generate the C first: the manifest lists what is there."""
        with exclusive():
            cythonize(SOURCES)
        super().run()


setup(
    packages=[
        *find_packages(include=["topo", "topo.*"]),
        "topo_cli",
        *(f"topo_cli.{package}" for package in find_packages("cli")),
    ],
    package_dir={"topo": "topo", "topo_cli": "cli"},
    ext_modules=[
        Extension(source.removesuffix(".pyx").replace("/", "."), [source], optional=not IS_REQUIRED) for source in SOURCES
    ],
    cmdclass={"build_ext": BuildCompiled, "sdist": SourceDistribution},
)
