"""topo: a distributed topology engine. Public names are re-exported here."""

from topo.version import __version__ as __version__
