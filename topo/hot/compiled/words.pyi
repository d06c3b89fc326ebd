from topo.hot.plain.words import distinct_words as distinct_words
from topo.hot.plain.words import pack_timestamps as pack_timestamps
from topo.hot.plain.words import pack_words as pack_words
