"""Workers on the hosts of a Spark cluster: one Spark job of one task for each slot, the task an agent that runs workers."""
