"""A store that refuses its user: the error has the folder, and the right that is missing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.request import Request, urlopen

import fsspec
import pytest

from tests.connectors.s3_store import server, store
from tests.connectors.sink_tasks import ReportingTask
from tests.servers.server import Server
from topo import FilesSink, FilesSpout
from topo.storage.files import open_files
from topo.testing.partition_harness import PartitionHarness

__all__ = ["server"]

pytestmark = [pytest.mark.integration, pytest.mark.server]
MakeUser = Callable[..., dict[str, Any]]


@pytest.fixture
def user(server: Server) -> Iterator[MakeUser]:
    """Make the options of a user with some rights. The store checks those of all users from then on, until the test ends."""
    import boto3

    root = {"aws_access_key_id": "topo", "aws_secret_access_key": "planted", "region_name": "us-east-1"}
    users = boto3.client("iam", endpoint_url=server.address, **root)

    def checks_after(requests: str) -> None:
        urlopen(Request(f"{server.address}/moto-api/reset-auth", requests.encode(), {"Content-Type": "text/plain"}))

    def make(*rights: str) -> dict[str, Any]:
        users.create_user(UserName="reader")
        allowed = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": rights, "Resource": "*"}]}
        users.put_user_policy(UserName="reader", PolicyName="rights", PolicyDocument=json.dumps(allowed))
        made = users.create_access_key(UserName="reader")["AccessKey"]
        checks_after("0")
        return {"key": made["AccessKeyId"], "secret": made["SecretAccessKey"], "endpoint_url": server.address}

    yield make
    checks_after("inf")
    for key in users.list_access_keys(UserName="reader")["AccessKeyMetadata"]:
        users.delete_access_key(UserName="reader", AccessKeyId=key["AccessKeyId"])
    users.delete_user_policy(UserName="reader", PolicyName="rights")
    users.delete_user(UserName="reader")


@pytest.mark.parametrize(
    ("rights", "message"),
    [
        (["s3:ListBucket"], "file 'a' of s3://bucket/in cannot be read: Forbidden; grant .*s3:GetObject.*correct its keys"),
        (["s3:GetObject"], "s3://bucket/in cannot be listed, and is listed again: Access Denied; grant .*s3:ListBucket"),
    ],
)
def test_a_missing_right_is_named_with_the_folder(server: Server, user: MakeUser, rights: list[str], message: str) -> None:
    files = store(server)
    files.makedirs("bucket", exist_ok=True)
    files.pipe_file("bucket/in/a", b"1\n")
    options = user(*rights)
    harness = PartitionHarness(lambda: FilesSpout("s3://bucket/in", storage_options=options))
    harness.turns(5)
    with pytest.raises(type(harness.errors[0]), match=message):
        raise harness.errors[0]


def test_a_file_that_is_done_and_stays_is_named_with_the_right(
    server: Server, user: MakeUser, caplog: pytest.LogCaptureFixture
) -> None:
    files = store(server)
    files.makedirs("bucket", exist_ok=True)
    files.pipe_file("bucket/in/a", b"1\n")
    options = user("s3:ListBucket", "s3:GetObject")
    harness = PartitionHarness(lambda: FilesSpout("s3://bucket/in", storage_options=options, on_done="delete"))
    harness.turns(10)
    harness.tasks[0].commit()
    harness.turns(2)
    assert "file 'a' of s3://bucket/in is done and cannot be removed, and it is tried again: " in caplog.text
    assert "grant the user of the store the right to it (s3:DeleteObject in S3)" in caplog.text


def test_the_rights_of_one_prefix_are_enough_to_write(server: Server, user: MakeUser, monkeypatch: pytest.MonkeyPatch) -> None:
    store(server).makedirs("bucket", exist_ok=True)
    # The server refuses questions about the bucket then, as S3 does where s3:ListBucket is for a prefix.
    options = user("s3:PutObject", "s3:GetObject", "s3:DeleteObject", "s3:ListBucket")
    task = ReportingTask(FilesSink("s3://bucket/out", format="json", storage_options=options))
    task.write(1)
    task.snapshot(1)
    task.output.complete(1)
    harness = PartitionHarness(lambda: FilesSpout("s3://bucket/out", format="json", fields=("n",), storage_options=options))
    harness.turns(10)
    assert [values for _, _, values in harness.all_rows()] == [(1,)] and harness.errors == []
    for name, value in {
        "AWS_ENDPOINT_URL": server.address,
        "AWS_ACCESS_KEY_ID": options["key"],
        "AWS_SECRET_ACCESS_KEY": options["secret"],
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    # Another test may have opened a store with other variables, which are no part of the key.
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    checkpoints = open_files("s3://bucket/checkpoints")
    checkpoints.write("0000000001/part", [b"x"])
    assert checkpoints.read("0000000001/part") == b"x"
