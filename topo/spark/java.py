"""`python -m topo.spark.java` and the names of `topo.launch.spark.java`, which finds Java for clusters and for data alike."""

from __future__ import annotations

import sys

from topo.launch.spark.java import JavaMissing, find_java, main, use_java

__all__ = ["JavaMissing", "find_java", "use_java"]

if __name__ == "__main__":
    sys.exit(main())
