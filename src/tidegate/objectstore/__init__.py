"""Local disks and object stores: files, Delta commits, lifespans of files, failpoints for tests."""
