"""ipc sockets whose files were removed from under them: by a cleaner of temporary files, or by hand."""

from __future__ import annotations

import os
from pathlib import Path

import zmq

from topo.errors import ConfigError, TopoEnvironmentError
from topo.storage.state_folder import is_gone
from topo.transport.security import check_private_folder
from topo.transport.zap import Socket

SCHEME = "ipc://"


def listen_again(socket: Socket, endpoint: str) -> bool:
    """Give a bound socket its path again if that is gone. Existing connections are kept.

    Args:
        socket: bound to `endpoint`.
        endpoint: an ipc address; any other is left alone.

    Returns:
        Whether the path was gone.

    Raises:
        TopoEnvironmentError: the path cannot be made again, so no process can connect any more.
    """
    path = Path(endpoint.removeprefix(SCHEME))
    if not endpoint.startswith(SCHEME) or not is_gone(path):
        return False
    # To unbind would cut the connections; a second listener gets the path by renaming its own.
    new = path.with_name(os.urandom(3).hex())
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        check_private_folder(path.parent)
        socket.bind(f"{SCHEME}{new}")
        os.rename(new, path)
    except (OSError, zmq.ZMQError, ConfigError) as error:
        raise TopoEnvironmentError(
            f"the socket {path} was removed while it was in use, and cannot be made again: {error}"
        ) from error
    return True
