from topo.hot.plain.rows import pack_rows as pack_rows
from topo.hot.plain.rows import unpack_rows as unpack_rows
