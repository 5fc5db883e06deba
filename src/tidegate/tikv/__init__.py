"""A TiDB cluster over gRPC: PD for timestamps, regions and safe points, TiKV for rows and changes.

    protos/*.proto  ──make protos──►  stubs/    messages        rpc.py    methods, channels

What the answers mean is decided by pure functions; one asyncio loop in one thread does the I/O.
"""

import os

# With gRPC's own handlers a fork beside its calls may abort the child, as that of Spark's JVM; no fork here calls gRPC.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
