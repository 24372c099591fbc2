"""The command `dualgap`."""

import click

from dualgap._core import __version__
from dualgap.cli.linear import fit, predict
from dualgap.cli.recommend import recommend as recommend_command
from dualgap.cli.tag import tag

__all__ = ["main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def main() -> None:
    """Learning with many outputs, solved to a certificate."""


main.add_command(fit)
main.add_command(predict)
main.add_command(recommend_command)
main.add_command(tag)
