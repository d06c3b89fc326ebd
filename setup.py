"""Package discovery: the folder `cli` installs as `topo_cli`, which pyproject.toml alone cannot discover."""

from setuptools import find_packages, setup

setup(
    packages=[
        *find_packages(include=["topo", "topo.*"]),
        "topo_cli",
        *(f"topo_cli.{package}" for package in find_packages("cli")),
    ],
    package_dir={"topo": "topo", "topo_cli": "cli"},
)
