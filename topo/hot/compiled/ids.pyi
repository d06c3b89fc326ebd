from topo.hot.plain.ids import Ids as Ids
