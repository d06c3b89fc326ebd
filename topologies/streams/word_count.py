"""Counts the words of text files, whatever is killed meanwhile.

topo run topologies/streams/word_count.py -p path=docs
"""

from topo.streams import AT_END, StreamBuilder


def topology(path: str = ".", pattern: str = "*.md", counts: int = 2) -> StreamBuilder:
    flow = StreamBuilder("streams-word-count")
    words = flow.from_files(path, pattern=pattern).flat_map(str.split).map(str.lower)
    words.key_by(lambda word: word, parallelism=counts).count(emit=AT_END, name="count").to(print)
    return flow
