"""Where a YARN's ResourceManager is, by the folder of Hadoop's settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from topo.errors import TopoEnvironmentError, UserError
from topo.launch.spark.context import address_of_driver
from topo.launch.spark.yarn import resource_managers
from topo.storage.submitted import SparkCluster

RM = "yarn.resourcemanager"


def folder_with(folder: Path, **settings: str) -> dict[str, str]:
    """Write a yarn-site.xml; return the environment that names its folder. `a__b` stands for a.b, `_-` is kept."""
    named = {name.replace("__", "."): value for name, value in settings.items()}
    rows = "".join(f"<property><name>{RM}.{name}</name><value> {value} </value></property>" for name, value in named.items())
    (folder / "yarn-site.xml").write_text(f"<?xml version='1.0'?><configuration>{rows}</configuration>")
    return {"HADOOP_CONF_DIR": str(folder)}


def test_an_address_or_the_default_port_of_a_host(tmp_path: Path) -> None:
    assert resource_managers(folder_with(tmp_path, address="rm.example:9032"), {}) == [("rm.example", 9032)]
    assert resource_managers(folder_with(tmp_path, hostname="rm.example"), {}) == [("rm.example", 8032)]


def test_a_reference_to_another_setting_is_followed(tmp_path: Path) -> None:
    environment = folder_with(tmp_path, hostname="rm.example", address="${yarn.resourcemanager.hostname}:9032")
    assert resource_managers(environment, {}) == [("rm.example", 9032)]


def test_some_that_stand_in_for_each_other(tmp_path: Path) -> None:
    settings = {"ha__enabled": "true", "ha__rm-ids": "a, b", "hostname__a": "one.example", "address__b": "two.example:9032"}
    assert resource_managers(folder_with(tmp_path, **settings), {}) == [("one.example", 8032), ("two.example", 9032)]


def test_a_setting_of_spark_counts_more(tmp_path: Path) -> None:
    environment = folder_with(tmp_path, hostname="rm.example", address="rm.example:9032")
    assert resource_managers(environment, {f"spark.hadoop.{RM}.address": "other:1"}) == [("other", 1)]


def test_what_only_hadoop_understands_is_left_to_it(tmp_path: Path) -> None:
    assert resource_managers(folder_with(tmp_path, hostname="${env.RM_HOST}"), {}) == []
    assert resource_managers({"YARN_CONF_DIR": str(tmp_path)}, {"spark.hadoop.fs.defaultFS": "file:///"}) == []
    (tmp_path / "yarn-site.xml").unlink()
    assert resource_managers({"YARN_CONF_DIR": str(tmp_path)}, {}) == []


def test_settings_that_are_missing_or_damaged_are_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="set HADOOP_CONF_DIR to the folder of its yarn-site"):
        resource_managers({}, {})
    with pytest.raises(UserError, match="there is no folder /nowhere"):
        resource_managers({"HADOOP_CONF_DIR": "/nowhere"}, {})
    (tmp_path / "yarn-site.xml").write_text("<configuration>")
    with pytest.raises(UserError, match=r"yarn-site.xml cannot be read"):
        resource_managers({"HADOOP_CONF_DIR": str(tmp_path)}, {})


def test_a_resource_manager_that_is_not_there_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in folder_with(tmp_path, address="127.0.0.1:9").items():
        monkeypatch.setenv(name, value)
    for conf in ({}, {"spark.driver.host": "127.0.0.1"}):
        with pytest.raises(TopoEnvironmentError, match=r"no ResourceManager of the YARN answers at 127\.0\.0\.1:9"):
            address_of_driver(SparkCluster(master="yarn", conf=conf))
