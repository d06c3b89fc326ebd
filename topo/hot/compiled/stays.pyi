from topo.hot.plain.values import stays as stays
