"""Where the ResourceManager of a YARN listens: Spark itself would try for a quarter of an hour to reach a wrong address."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

from topo.errors import UserError

_PORT = 8032
_NAMES = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
_REFERENCE = re.compile(r"\$\{([^}]+)\}")
_PREFIX = "yarn.resourcemanager"


def resource_managers(environment: Mapping[str, str], conf: Mapping[str, str]) -> list[tuple[str, int]]:
    """Return host and port of the ResourceManagers that Spark would ask; several where they stand in for each other.

    Args:
        environment: names the folder of Hadoop's settings.
        conf: settings of Spark, of which `spark.hadoop...` count more than those in the folder.

    Returns:
        Nothing when the settings name none, or in a way that only Hadoop understands.

    Raises:
        UserError: there is no such folder, or its yarn-site.xml cannot be read.
    """
    folders = [Path(environment[name]) for name in _NAMES if environment.get(name)]
    if not folders:
        raise UserError("--master yarn needs the cluster's settings: set HADOOP_CONF_DIR to the folder of its yarn-site.xml")
    if missing := [folder for folder in folders if not folder.is_dir()]:
        raise UserError(f"HADOOP_CONF_DIR is the folder of the cluster's yarn-site.xml; there is no folder {missing[0]}")
    settings: dict[str, str] = {}
    for folder in folders:
        settings |= _settings_in(folder / "yarn-site.xml")
    settings |= {name.removeprefix("spark.hadoop."): text for name, text in conf.items() if name.startswith("spark.hadoop.")}
    ids = settings.get(f"{_PREFIX}.ha.rm-ids", "") if settings.get(f"{_PREFIX}.ha.enabled", "").strip() == "true" else ""
    suffixes = [f".{one.strip()}" for one in ids.split(",")] if ids else [""]
    return [place for suffix in suffixes if (place := _place(settings, suffix)) is not None]


def _settings_in(file: Path) -> dict[str, str]:
    try:
        rows = ElementTree.parse(file).getroot().iter("property")
        return {(row.findtext("name") or "").strip(): (row.findtext("value") or "").strip() for row in rows}
    except FileNotFoundError:
        return {}
    except (OSError, ElementTree.ParseError) as error:
        raise UserError(f"{file} cannot be read: {error}") from error


def _place(settings: Mapping[str, str], suffix: str) -> tuple[str, int] | None:
    host = _value(settings, f"{_PREFIX}.hostname{suffix}")
    given = _value(settings, f"{_PREFIX}.address{suffix}") or (f"{host}:{_PORT}" if host else "")
    name, _, port = given.rpartition(":")
    return (name, int(port)) if name and "$" not in name and port.isdecimal() else None


def _value(settings: Mapping[str, str], name: str) -> str:
    text = settings.get(name, "")
    return _REFERENCE.sub(lambda found: settings.get(found[1], found[0]), text)
