"""The topology master's decisions: who lives, which epoch holds, when it is over. Pure; `topo.runtime.master` performs them."""

from topo.master.master import TopologyMaster

__all__ = ["TopologyMaster"]
