"""The commands that come with the embedded TiDB: `tidegate demo`, `upstream` and `broker`."""
