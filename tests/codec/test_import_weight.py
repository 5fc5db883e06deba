"""What `import tidegate.codec` costs: nothing but the standard library and msgspec."""

import json
import subprocess
import sys

import pytest

SCRIPT = """
import json, sys
before = set(sys.modules)
import {module}
print(json.dumps(sorted({{name.partition(".")[0] for name in set(sys.modules) - before}})))
"""


def loaded(module: str) -> set[str]:
    """The packages outside of the standard library that importing `module` loads."""
    words = [sys.executable, "-c", SCRIPT.format(module=module)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    names = set(json.loads(done.stdout)) - sys.stdlib_module_names
    return {name for name in names if not name.startswith("_sysconfigdata")}


@pytest.mark.parametrize("module", ["tidegate.codec", "tidegate.codec.sniff", "tidegate.codec.stream"])
def test_the_codec_is_light(module: str) -> None:
    """No Spark, no Arrow, no Kafka, no command line, and no compression before a value is compressed."""
    assert loaded(module) <= {"tidegate", "msgspec", "typing_extensions"}


def test_transcoding_needs_no_extra() -> None:
    """The command runs on what `pip install tidegate` brings."""
    heavy = {"pyspark", "pyarrow", "confluent_kafka", "deltalake", "pandas", "numpy", "obstore", "sqlglot"}
    assert not loaded("tidegate.cli.transcode") & heavy
