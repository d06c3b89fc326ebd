from topo.hot.plain.acks import Acks as Acks
