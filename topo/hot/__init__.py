"""The per-tuple path: loops over tuples, rows and ids, which take and give columns.

It lies beside `topo.ids`: it knows no frames, no tasks and no settings. Errors, refusals and their texts are made outside of it.

`topo.hot.plain` is the reference. Where `topo.hot.compiled` was built its names take the place of the plain ones, unless the
environment has TOPO_PURE; nothing but speed depends on it. `KIND` is the kind in use: "compiled" or "plain"; `PLAIN_BECAUSE` is
the reason when it is plain, and empty otherwise.
"""

import os

from topo.hot.plain import *  # noqa: F403 - its __all__ lists the names

try:
    if os.environ.get("TOPO_PURE"):
        raise ImportError("TOPO_PURE is set")
    from topo.hot.compiled import *  # noqa: F403
except ImportError as error:
    KIND, PLAIN_BECAUSE = "plain", str(error)
else:
    KIND, PLAIN_BECAUSE = "compiled", ""
