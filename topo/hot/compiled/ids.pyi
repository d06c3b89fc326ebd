from topo.hot.plain.ids import Ids as Ids
from topo.hot.plain.ids import has_suspect as has_suspect
from topo.hot.plain.ids import traced_places as traced_places
