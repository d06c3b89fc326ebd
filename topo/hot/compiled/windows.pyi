from topo.hot.plain.windows import accumulate as accumulate
from topo.hot.plain.windows import hold_run as hold_run
