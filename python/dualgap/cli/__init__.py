"""Command-line interface: the command `dualgap`."""

from importlib.util import find_spec

import click

from dualgap._core import __version__
from dualgap.cli.linear import fit, predict
from dualgap.cli.tag import tag

__all__ = ["main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def main() -> None:
    """Multi-class, structured and recommender models that report how close to optimal they are."""


def _recommend() -> click.Command:
    """Return the command `dualgap recommend`; without pandas, it prints what to install."""
    if find_spec("pandas") is not None:
        from dualgap.cli.recommend import recommend

        return recommend
    missing = "requires pandas: pip install 'dualgap[recommend]'"
    # Accept any arguments, so that even --help prints the message.
    anything = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}

    @click.command("recommend", context_settings=anything, help=f"({missing})")
    def command() -> None:
        raise click.ClickException(f"dualgap recommend {missing}")

    return command


main.add_command(fit)
main.add_command(predict)
main.add_command(_recommend())
main.add_command(tag)
