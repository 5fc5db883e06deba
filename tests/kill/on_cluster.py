"""`tidegate` on a cluster of two executor processes: run as a program with the words of a command."""

import atexit
import os
import shutil
from functools import partial
from pathlib import Path

import pyspark

from tidegate.cli.main import main
from tidegate.objectstore.failpoint import DIRECTORY_VARIABLE, VARIABLE
from tidegate.spark.session import session

MASTER = "local-cluster[2,1,1024]"

if __name__ == "__main__":
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # a machine's own name often leads nowhere
    passed_on = [VARIABLE, DIRECTORY_VARIABLE, "PYTHONPATH"]
    conf = {f"spark.executorEnv.{name}": os.environ[name] for name in passed_on if name in os.environ}
    started = session(conf={"spark.master": MASTER, "spark.executor.memory": "512m", **conf})
    left = Path(pyspark.__file__).parent / "work" / started.sparkContext.applicationId
    atexit.register(partial(shutil.rmtree, left, ignore_errors=True))
    main(prog_name="tidegate")
