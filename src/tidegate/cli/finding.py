"""Results of checks of `tidegate doctor`, as lines or JSON.

`fail` marks what is missing or refused, `warn` what will be slow or tight.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import click

State = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check; `remedy` is empty when nothing is to be done."""

    check: str
    state: State
    text: str
    remedy: str = ""


def show(findings: Sequence[Finding], *, as_json: bool) -> None:
    """Print findings, and exit with 1 if a check has failed."""
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        width = max(len(finding.check) for finding in findings)
        for finding in findings:
            click.echo(f"{finding.state:4}  {finding.check:{width}}  {finding.text}")
            if finding.remedy:
                click.echo(f"{'':4}  {'':{width}}  -> {finding.remedy}")
    if any(finding.state == "fail" for finding in findings):
        raise click.exceptions.Exit(1)
