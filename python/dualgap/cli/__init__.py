"""Command-line interface: the command `dualgap`."""

from importlib import import_module
from importlib.util import find_spec

import click

from dualgap._core import __version__

__all__ = ["main"]

_PANDAS = "requires pandas: pip install 'dualgap[recommend]'"

# Module and summary of each command. Importing the modules takes a second, mostly for scikit-learn.
_COMMANDS = {
    "fit": ("linear", "Fit a linear classifier to a file of rows."),
    "predict": ("linear", "Predict labels with the model of `fit`."),
    "recommend": ("recommend", "Fit a recommender to ratings or clicks."),
    "tag": ("tag", "Label sequences of tokens (CRF, structured SVM)."),
}

# LIBLINEAR's name of a command.
_ALIASES = {"train": "fit"}


class _LazyGroup(click.Group):
    """A group of commands that imports the module of a command when the command runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        name = _ALIASES.get(name, name)
        if name not in _COMMANDS:
            return None
        if name == "recommend" and find_spec("pandas") is None:
            return _needs_pandas()
        command: click.Command = getattr(import_module(f"dualgap.cli.{_COMMANDS[name][0]}"), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._summary(name)) for name in self.list_commands(ctx)])

    @staticmethod
    def _summary(name: str) -> str:
        missing = name == "recommend" and find_spec("pandas") is None
        return f"({_PANDAS})" if missing else _COMMANDS[name][1]


def _needs_pandas() -> click.Command:
    """Return a command `dualgap recommend` that only prints how to install pandas."""
    # Accept any arguments, so that even --help prints the message.
    anything = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}

    @click.command("recommend", context_settings=anything)
    def command() -> None:
        raise click.ClickException(f"dualgap recommend {_PANDAS}")

    return command


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def main() -> None:
    """Multi-class, structured and recommender models that report how close to optimal they are."""
