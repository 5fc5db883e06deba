"""TiCDC's csv files."""

from tidegate.codec.csv.encode import CsvEncoder
from tidegate.codec.csv.options import CsvOptions, csv_options

__all__ = ["CsvEncoder", "CsvOptions", "csv_options"]
