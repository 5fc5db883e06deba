"""`tidegate lake upkeep` that leaves no small file: run as a program with `lake upkeep LAKE`."""

from tidegate.changelog import changelog
from tidegate.cli.main import main
from tidegate.sink.delta import upkeep

if __name__ == "__main__":
    upkeep.SMALL_FILES_MAX = changelog.SMALL_FILES_MAX = 1  # type: ignore[misc]
    upkeep.COMPACTIONS_MAX = 100  # type: ignore[misc]
    main(prog_name="tidegate")
