from topo.hot.plain.windows import accumulate as accumulate
