"""`tidegate sink`: replicas in databases."""
