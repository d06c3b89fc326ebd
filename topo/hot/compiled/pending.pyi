from topo.hot.plain.pending import Pending as Pending
