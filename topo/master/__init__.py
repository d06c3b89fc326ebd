"""The topology master's decisions: who lives, which epoch holds, when it is over. Pure; `topo.master_process.loop` performs
them."""
