"""`tidegate server`: many changefeeds in one process, kept in a store that two servers may share."""
