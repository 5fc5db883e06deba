"""A model checker for online schema change: every state of a small cluster, and the shortest way to a broken one."""
