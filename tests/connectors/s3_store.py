"""A server of S3 for the tests of a module, and its buckets."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from tests.servers import s3
from tests.servers.server import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server. A proxy of the machine is not asked for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1")
        patch.setenv("no_proxy", "127.0.0.1")
        started = s3.start(tmp_path_factory.mktemp("s3"))
        yield started
        started.stop()


@pytest.fixture
def bucket(server: Server) -> str:
    name = f"test-{secrets.token_hex(6)}"
    store(server).mkdir(name)
    return name


def store(server: Server) -> Any:
    """The store as another program sees it."""
    from s3fs import S3FileSystem

    settings = {"key": "topo", "secret": "planted", "endpoint_url": server.address}
    return S3FileSystem(**settings, use_listings_cache=False, skip_instance_cache=True)
