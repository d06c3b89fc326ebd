"""The mailbox of a task: posting from any thread, running on one."""
