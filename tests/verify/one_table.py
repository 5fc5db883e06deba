"""The comparison of a recording with a lake, for one table."""

import pyarrow as pa

from tidegate.verify.compare import Difference, compare_sides
from tidegate.verify.local import LakeReader, RecordingReader, Truth, TruthTable, in_memory


def compare(truth: TruthTable, lake: pa.Table) -> list[Difference]:
    """Return everything in which a table of a lake differs from the truth, columns first."""
    recorded = RecordingReader("the recording", Truth(0, 0, {"a.t": truth}))
    stored = LakeReader("the lake", None, ["a.t"], in_memory(lambda _: lake), shape_of=recorded.shape_of)
    (report,) = compare_sides(recorded, stored)
    return list(report.differences)
