"""Where worker processes come from, and what starts, resumes and ends topologies on this machine."""
