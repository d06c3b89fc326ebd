"""Compares the vendored libraries of the page and of its tests with the packages as published.

python scripts/vendor.py --check            # fetches each version with npm pack, and compares byte for byte
python scripts/vendor.py --update NAME      # moves a library to its latest version
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = (ROOT / "topo/ui/static/vendor", ROOT / "tests/browser/vendor")


def fetch(package: str, folder: str) -> tarfile.TarFile:
    packed = subprocess.run(
        ["npm", "pack", package, "--silent"], cwd=folder, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.split()[-1]
    return tarfile.open(Path(folder) / packed)


def content(archive: tarfile.TarFile, path: str) -> bytes:
    file = archive.extractfile(f"package/{path}")
    if file is None:
        raise SystemExit(f"vendor: {archive.name} has no file {path}")
    return file.read()


def check(vendor: Path, rows: list[dict[str, str]]) -> int:
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        archives = {row["name"]: row["version"] for row in rows}
        opened = {name: fetch(f"{name}@{version}", folder) for name, version in archives.items()}
        for row in rows:
            kept = (vendor / row["file"]).read_bytes()
            same = kept == content(opened[row["name"]], row["in_package"]) and hashlib.sha256(kept).hexdigest() == row["sha256"]
            wrong += not same
            print(f"{'same' if same else 'DIFFERS'}  {row['name']} {row['version']}  {row['file']}")
    return 1 if wrong else 0


def update(listed: dict[Path, list[dict[str, str]]], name: str) -> int:
    vendor = next((vendor for vendor, rows in listed.items() if any(row["name"] == name for row in rows)), None)
    if vendor is None:
        names = {row["name"] for rows in listed.values() for row in rows}
        raise SystemExit(f"vendor: no library {name!r}; there are {', '.join(sorted(names))}")
    mine = [row for row in listed[vendor] if row["name"] == name]
    listing = vendor / "vendor.toml"
    command = ["npm", "view", name, "version"]
    version = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    blocks = listing.read_text().split("\n[[file]]\n")
    with tempfile.TemporaryDirectory() as folder:
        archive = fetch(f"{name}@{version}", folder)
        for row in mine:
            new = content(archive, row["in_package"])
            (vendor / row["file"]).write_bytes(new)
            place = next(index for index, block in enumerate(blocks) if f'\nfile = "{row["file"]}"\n' in block)
            block = blocks[place].replace(row["sha256"], hashlib.sha256(new).hexdigest())
            blocks[place] = block.replace(f'version = "{row["version"]}"', f'version = "{version}"')
    listing.write_text("\n[[file]]\n".join(blocks))
    print(f"{name}: {mine[0]['version']} -> {version}")
    return 0


if __name__ == "__main__":
    listed = {vendor: tomllib.loads((vendor / "vendor.toml").read_text())["file"] for vendor in FOLDERS}
    if sys.argv[1:] == ["--check"]:
        sys.exit(max([check(vendor, rows) for vendor, rows in listed.items()]))
    if len(sys.argv) == 3 and sys.argv[1] == "--update":
        sys.exit(update(listed, sys.argv[2]))
    sys.exit(__doc__)
