"""Local disks and object stores: files, Delta commits, life spans of files, failpoints for tests."""
