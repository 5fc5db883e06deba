"""A TiDB cluster over gRPC: PD for timestamps, regions and safe points, TiKV for rows and changes.

    protos/*.proto  ──make protos──►  stubs/    messages        rpc.py    methods, channels

What the answers mean is decided by pure functions; one asyncio loop in one thread does the I/O.
"""
