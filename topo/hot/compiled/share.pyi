from topo.hot.plain.share import share as share
