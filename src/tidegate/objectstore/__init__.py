"""Local disks and object stores: files, Delta commits, life spans of files, places where a test may crash."""
