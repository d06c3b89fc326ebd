"""The settings for Spark, and the wait for slots."""

from __future__ import annotations

import socket

import pytest

from topo.errors import TopoEnvironmentError, UserError
from topo.launch.spark.cluster import SlotWatch, registration_s, spark_settings
from topo.launch.spark.context import address_of_driver
from topo.storage.submitted import SparkCluster


def settings(master: str = "spark://m:7077", **conf: str) -> dict[str, str]:
    given = {name.replace("_", "."): value for name, value in conf.items()}
    return spark_settings(SparkCluster(master=master, conf=given), "t", 4, "10.0.0.1")


def test_a_core_more_than_slots_is_asked_for() -> None:
    assert settings()["spark.cores.max"] == "5"
    assert settings(spark_cores_max="9")["spark.cores.max"] == "9"


def test_cores_are_asked_for_by_whole_executors_since_spark_starts_none_of_a_rest() -> None:
    assert settings(spark_executor_cores="4")["spark.cores.max"] == "8"
    assert settings(spark_executor_cores="5")["spark.cores.max"] == "5"
    assert settings(spark_executor_cores="4", spark_cores_max="5")["spark.cores.max"] == "5"


def test_where_executors_are_containers_their_number_is_asked_for() -> None:
    assert settings("yarn")["spark.executor.instances"] == "5"
    assert settings("k8s://https://h:6443", spark_executor_cores="2")["spark.executor.instances"] == "3"
    assert "spark.cores.max" not in settings("yarn")


def test_lost_executors_end_no_application_in_containers() -> None:
    assert settings("yarn")["spark.executor.maxNumFailures"] == "1000000"
    assert settings("yarn", spark_executor_maxNumFailures="9")["spark.executor.maxNumFailures"] == "9"
    assert "spark.executor.maxNumFailures" not in settings()


def test_a_killed_agent_is_tried_again_for_ever() -> None:
    assert settings()["spark.task.maxFailures"] == "1000000"


@pytest.mark.parametrize("name", ["spark.speculation", "spark.dynamicAllocation.enabled", "spark.python.worker.reuse"])
def test_what_would_break_a_topology_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=f"cannot run with {name}=true"):
        spark_settings(SparkCluster(master="spark://m:7077", conf={name: "true"}), "t", 4, "10.0.0.1")


@pytest.mark.parametrize(
    ("master", "given", "limit_s"),
    [
        ("spark://m:7077", None, 30.0),
        ("local-cluster[2,1,512]", None, 60.0),
        ("yarn", None, 120.0),
        ("yarn", "5min", 300.0),
        ("yarn", "90s", 90.0),
        ("yarn", " 2MIN", 120.0),
        # A number without a unit is one of milliseconds with Spark.
        ("spark://m:7077", "45000", 45.0),
    ],
)
def test_executors_are_waited_for_as_spark_reads_its_setting(master: str, given: str | None, limit_s: float) -> None:
    conf = {} if given is None else {"spark.scheduler.maxRegisteredResourcesWaitingTime": given}
    assert registration_s(SparkCluster(master=master, conf=conf)) == limit_s


@pytest.mark.parametrize("master", ["yarn", "spark://m:7077"])
@pytest.mark.parametrize("cores", ["two", "0"])
def test_cores_of_executors_are_a_number(cores: str, master: str) -> None:
    with pytest.raises(UserError, match=f"spark.executor.cores={cores} is no number of cores"):
        spark_settings(SparkCluster(master=master, conf={"spark.executor.cores": cores}), "t", 4, "10.0.0.1")


@pytest.mark.parametrize("master", ["k8s://https://127.0.0.1", "k8s://127.0.0.1:", "k8s://"])
def test_an_api_server_without_a_port_is_refused(master: str) -> None:
    with pytest.raises(UserError, match="write k8s://https://host:443"):
        address_of_driver(SparkCluster(master=master))


def test_a_host_that_does_not_answer_does_not_hold_up_the_end() -> None:
    """Else Spark waits two minutes for it wherever it removes data of jobs that have ended, and holds a lock meanwhile."""
    settings = spark_settings(SparkCluster(master="spark://m:7077"), "t", 4, "10.0.0.1")
    assert settings["spark.cleaner.referenceTracking.blocking"] == "false"


@pytest.mark.parametrize("master", ["10.0.0.1:7077", "http://10.0.0.1:7077", "yarn://10.0.0.1:8032", ""])
def test_what_is_no_spark_master_is_refused_before_spark_starts(master: str) -> None:
    with pytest.raises(UserError, match=f"'{master}' is not the URL of a Spark master: write spark://host:7077"):
        address_of_driver(SparkCluster(master=master))


def test_a_name_of_the_driver_that_does_not_resolve_is_reported_with_its_setting() -> None:
    with pytest.raises(TopoEnvironmentError, match=r"spark\.driver\.host=driver\.invalid is no address"):
        address_of_driver(SparkCluster(master="local[2]", conf={"spark.driver.host": "driver.invalid"}))


@pytest.mark.parametrize("host", [{}, {"spark.driver.host": "127.0.0.1"}])
def test_a_spark_master_that_does_not_answer_is_reported_whatever_the_address_of_the_driver(host: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"spark://127.0.0.1:{server.getsockname()[1]}"
        assert address_of_driver(SparkCluster(master=url, conf=host)) == "127.0.0.1"
    with pytest.raises(TopoEnvironmentError, match=f"no Spark master answers at {url}"):
        address_of_driver(SparkCluster(master=url, conf=host))
    with pytest.raises(UserError, match="write spark://host:7077"):
        address_of_driver(SparkCluster(master="spark://127.0.0.1", conf=host))


def watch(needed: int = 4) -> SlotWatch:
    return SlotWatch("t", "spark://m:7077", needed, limit_s=30.0, now=0.0)


def test_with_a_spare_slot_nothing_is_waited_for() -> None:
    assert watch().is_over(5, 0.1)


def test_the_spare_slot_is_waited_for_only_a_moment() -> None:
    slots = watch()
    assert [slots.is_over(4, now) for now in (0.1, 0.3, 0.7)] == [False, False, True]


def test_slots_that_come_one_by_one_are_waited_for() -> None:
    slots = watch()
    assert [slots.is_over(count, now) for count, now in ((0, 1.0), (2, 6.0), (3, 13.0), (5, 20.0))] == [False] * 3 + [True]


def test_too_few_slots_are_told_when_no_more_are_coming() -> None:
    slots = watch()
    slots.is_over(3, 5.0)
    assert not slots.is_over(3, 12.0)
    with pytest.raises(UserError) as raised:
        slots.is_over(3, 13.0)
    assert str(raised.value) == (
        "topology t needs 4 worker slots; Spark at spark://m:7077 offers 3. "
        "Lower --workers or --slots, add Spark workers, or raise spark.cores.max"
    )


def test_a_cluster_that_gives_nothing_is_told_after_a_while() -> None:
    slots = watch()
    assert not slots.is_over(0, 29.0)
    with pytest.raises(UserError, match="gives it none"):
        slots.is_over(0, 30.0)


def test_too_few_containers_are_told_with_what_gives_more() -> None:
    slots = SlotWatch("t", "yarn", needed=4, limit_s=30.0, now=0.0)
    slots.is_over(3, 5.0)
    with pytest.raises(UserError, match="have the queue or namespace give more"):
        slots.is_over(3, 13.0)
