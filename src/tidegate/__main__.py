"""The command line as a program for `python -m tidegate` and, as a file, for `spark-submit`."""

from tidegate.cli.main import main

if __name__ == "__main__":
    main(prog_name="tidegate")
