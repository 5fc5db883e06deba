"""The options --master and --conf of commands that start Spark."""

import click


def conf_of(master: str | None, settings: tuple[str, ...]) -> dict[str, str]:
    """Return the settings of Spark that the options give. BadParameter for words that are no setting."""
    if wrong := [setting for setting in settings if "=" not in setting]:
        raise click.BadParameter(f"{wrong[0]!r} is not NAME=VALUE", param_hint="--conf")
    conf = dict(setting.split("=", 1) for setting in settings)
    if master is not None:
        conf["spark.master"] = master
    return conf
