"""A client's connection to a master."""

from __future__ import annotations

import os

import pytest

from topo.transport.control_client import ControlClient, EndpointInvalid


@pytest.mark.parametrize("endpoint", ["tcp://x", "ipc://" + 200 * "x", "nowhere"])
def test_an_endpoint_that_cannot_be_used_is_named_and_leaves_no_file_open(endpoint: str) -> None:
    before = os.listdir("/dev/fd")
    with pytest.raises(EndpointInvalid, match=f"cannot connect to '{endpoint}': ") as refused:
        ControlClient(endpoint)
    assert os.listdir("/dev/fd") == before
    assert refused.value.__traceback__ is not None, "its frames keep the client, which the collector would close"
