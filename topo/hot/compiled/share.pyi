from topo.hot.plain.share import share as share
from topo.hot.plain.share import share_ids as share_ids
