"""The command `dualgap`."""

from importlib.util import find_spec

import click

from dualgap._core import __version__
from dualgap.cli.linear import fit, predict
from dualgap.cli.tag import tag

__all__ = ["main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def main() -> None:
    """Learning with many outputs, solved to a certificate."""


def _recommend() -> click.Command:
    """The command `dualgap recommend`, or one line that says what it needs."""
    if find_spec("pandas") is not None:
        from dualgap.cli.recommend import recommend

        return recommend
    lacking = "needs pandas: pip install 'dualgap[recommend]'"
    # Whatever is asked of it, --help as well.
    anything = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}

    @click.command("recommend", context_settings=anything, help=f"({lacking})")
    def command() -> None:
        raise click.ClickException(f"dualgap recommend {lacking}")

    return command


main.add_command(fit)
main.add_command(predict)
main.add_command(_recommend())
main.add_command(tag)
