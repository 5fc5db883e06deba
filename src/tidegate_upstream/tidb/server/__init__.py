"""The embedded TiDB at a port that MySQL clients know."""
