from topo.hot.plain.trees import Trees as Trees
