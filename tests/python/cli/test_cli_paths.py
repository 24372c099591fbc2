"""File and stream arguments of all commands."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner
from full_disk import run_on_small_disk
from sklearn.datasets import load_iris

from dualgap.cli import main
from dualgap.cli._paths import FileCommand, Input, Output
from dualgap.recommend import OrdinalRecommender

X, Y = load_iris(return_X_y=True)
COMMAND = f"{shlex.quote(sys.executable)} -m dualgap.cli"
SENTENCES = "the D\ncat N\n\na D\ndog N\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run each test in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def all_commands(group: click.Command, *words: str) -> Iterator[tuple[list[str], click.Command]]:
    """List all commands with their names on the command line."""
    if not isinstance(group, click.Group):
        yield [*words], group
        return
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield from all_commands(command, *words, name)


def outputs_with_other_files() -> Iterator[Any]:
    """List each output of each command with each of its inputs and other outputs."""
    for words, command in all_commands(main):
        files = [param for param in command.params if isinstance(param.type, Input | Output)]
        for output in files:
            for other in files:
                if isinstance(output.type, Output) and other is not output:
                    names = [param.name for param in (output, other)]
                    yield pytest.param(words, command, *names, id=" ".join([*words, *names]))


def test_every_file_option_is_declared_as_input_or_output() -> None:
    found = list(all_commands(main))
    assert len(found) >= 5
    for words, command in found:
        for param in command.params:
            if isinstance(param.type, click.Path | click.File):
                assert isinstance(param.type, Input | Output), (words, param.name)
                assert isinstance(command, FileCommand), words


@pytest.mark.parametrize("link", ["name", "symbolic", "hard"])
@pytest.mark.parametrize(("words", "command", "output", "other"), list(outputs_with_other_files()))
def test_an_output_that_is_also_an_input_is_a_usage_error(
    words: list[str], command: click.Command, output: str, other: str, link: str
) -> None:
    given: list[str] = []
    for param in command.params:
        path = Path(param.name or "")
        if not (param.required or param.name in (output, other)):
            continue
        path.write_text("content")
        if param.name == output and link == "name":
            path = Path(other)
        elif param.name == output:
            path.unlink()
            Path(other).touch()
            (path.symlink_to if link == "symbolic" else path.hardlink_to)(other)
        given += [str(path)] if isinstance(param, click.Argument) else [param.opts[-1], str(path)]
    result = CliRunner().invoke(main, [*words, *given])
    assert result.exit_code == 2, result.output
    assert "choose another file" in result.stderr
    assert Path(other).read_text() == "content"


def run_in_shell(command: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, shell=True, capture_output=True, text=True, check=False, timeout=250, **options
    )


def test_redirected_and_linked_files_count_as_inputs() -> None:
    Path("rows").write_text("1 1:1\n2 1:-1\n")
    Path("rows.model").symlink_to("rows")
    rejected = CliRunner().invoke(main, ["fit", "rows"])
    assert rejected.exit_code == 2
    assert "MODEL_FILE would overwrite TRAINING_FILE" in rejected.stderr
    Path("rows.model").unlink()
    result = run_in_shell(f"{COMMAND} fit - rows < rows")
    assert (result.returncode, result.stderr.count("choose another file")) == (2, 1)
    os.mkdir("ratings")
    Path("ratings/u.data").write_text("1\t1\t5\t0\n")
    rejected = CliRunner().invoke(main, ["recommend", "--data", "ratings", "--save=ratings/u.data"])
    assert rejected.exit_code == 2
    # An existing file that is not an input may be replaced.
    Path("ratings/model.npz").write_text("old")
    result = CliRunner().invoke(main, ["recommend", "--data=ratings", "--save=ratings/model.npz"])
    assert "choose another file" not in result.stderr


def write_models() -> None:
    np.savez("rows.npz", X=X, y=Y)
    Path("tokens").write_text(SENTENCES)
    Path("template").write_text("U00:%x[0,0]\n")
    pairs = "".join(f"{at // 9},{at % 9}\n" for at in range(81) if at % 4)
    Path("ratings.csv").write_text(f"user,item\n{pairs}")
    for command in (
        "fit -q rows.npz m",
        "tag train -q -t template tokens t",
        "recommend --quiet --likes --data ratings.csv --save r",
    ):
        assert CliRunner().invoke(main, command.split()).exit_code == 0


READERS = ["predict rows.npz PIPE", "tag predict tokens PIPE", "recommend --load PIPE --user 1"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("command", READERS)
def test_a_model_cannot_be_read_from_a_pipe(command: str) -> None:
    write_models()
    os.mkfifo("PIPE")
    result = CliRunner().invoke(main, command.split())
    assert result.exit_code == 1, result.output
    assert "error: PIPE: not a " in result.stderr
    assert "a pipe or device" in result.stderr


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("command", ["predict -q rows.npz m PIPE", "tag predict tokens t PIPE"])
def test_predictions_can_be_written_to_a_named_pipe(command: str) -> None:
    write_models()
    os.mkfifo("PIPE")
    direct = CliRunner().invoke(main, command.removesuffix("PIPE").split())
    result = run_in_shell(f"{COMMAND} {command} > notes & cat PIPE; wait")
    assert direct.stdout
    assert result.stdout == direct.stdout


@pytest.mark.skipif(not os.path.exists("/dev/stdout"), reason="needs /dev/stdout")
@pytest.mark.parametrize("command", ["predict -q rows.npz m", "tag predict tokens t"])
def test_predictions_can_be_written_to_dev_stdout(command: str) -> None:
    write_models()
    result = run_in_shell(f"{COMMAND} {command} /dev/stdout")
    assert result.stdout.startswith(run_in_shell(f"{COMMAND} {command}").stdout)


FORKS = """
import json, os, shlex, sys
import dualgap.multiclass, dualgap.recommend, dualgap.sequence
from dualgap.cli import main

def run(command):
    words = shlex.split(command)
    for number, stream in enumerate(("<", ">", "2>")):
        mode = "r" if number == 0 else "w"
        name = next((word.removeprefix(stream) for word in words if word.startswith(stream)), None)
        if name != "&-":
            file = open(name or f"stream-{number}", mode)
            os.dup2(file.fileno(), number)
        else:
            os.close(number)
        found = None if name == "&-" else open(number, mode, closefd=False)
        setattr(sys, ("stdin", "stdout", "stderr")[number], found)
    try:
        main([word for word in words if not word.startswith(("<", ">", "2>"))])
    except SystemExit as end:
        status = end.code or 0
    # The interpreter also flushes standard output at its end, and exits with 120 on an error.
    try:
        sys.stdout is None or sys.stdout.flush()
    except OSError:
        status = 120
    os._exit(status)

commands, found = json.loads(sys.argv[1]), []
for command in commands:
    for number in range(3):
        open(f"stream-{number}", "w").close()
    child = os.fork() or run(command)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    found.append([status, open("stream-2").read()])
print(json.dumps(found))
"""


def run_with_streams(commands: list[str]) -> list[tuple[int, str]]:
    """Run commands with redirections in forks of one process; return their statuses and messages.

    A stream that a command neither redirects nor closes (``>&-``) is redirected to a file.
    """
    arguments = [sys.executable, "-c", FORKS, json.dumps(commands)]
    result = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=250)
    assert result.returncode == 0, result
    return [(status, notes) for status, notes in json.loads(result.stdout)]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_closed_or_full_streams_give_a_one_line_error() -> None:
    write_models()
    cases = {
        "recommend --load r --user 1 >&-": "standard output is closed",
        "recommend --load r --user 1 >/dev/full": "No space left on device: standard output",
        "recommend --load r --user 1 --output csv >/dev/full": (
            "No space left on device: standard output"
        ),
        "recommend --quiet --likes --data ratings.csv --save /dev/full": (
            "No space left on device: '/dev/full'"
        ),
        "predict rows.npz m >&-": "standard output is closed",
        "predict rows.npz m >/dev/full": "No space left on device: standard output",
        "tag predict tokens t >&-": "standard output is closed",
        "tag predict tokens t >/dev/full": "No space left on device: standard output",
        "fit -q rows.npz - >&-": "standard output is closed",
        "fit -q rows.npz - >/dev/full": "No space left on device: standard output",
        "fit -q rows.npz n >/dev/full": "No space left on device: standard output",
        "fit -q - n <&-": "standard input is closed",
        "predict - m <&-": "standard input is closed",
        "predict rows.npz - <&-": "standard input is closed",
        "tag predict - t <&-": "standard input is closed",
        "predict rows.npz m /dev/full": "No space left on device: '/dev/full'",
        "tag predict tokens t /dev/full": "No space left on device: '/dev/full'",
        "fit -q rows.npz /dev/full": "No space left on device: '/dev/full'",
        "tag train -q -t template tokens /dev/full": "No space left on device: '/dev/full'",
    }
    found = run_with_streams(list(cases))
    for (command, message), (status, notes) in zip(cases.items(), found, strict=True):
        assert status == 1, (command, notes)
        assert notes.lower().startswith("error: "), (command, notes)
        assert notes.endswith(f"{message}\n"), (command, notes)
        assert notes.count("\n") == 1, (command, notes)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_model_is_written_with_any_stream_closed() -> None:
    write_models()
    streams = [">&-", "2>&-", "<&-", ">&- 2>&- <&-"]
    commands = {
        "m": "fit rows.npz",
        "t": "tag train -t template tokens",
        "r": "recommend --likes --data ratings.csv --save",
    }
    runs = [(n, m, f"{commands[m]} {n}.{m} {s}") for m in commands for n, s in enumerate(streams)]
    found = run_with_streams([command for _, _, command in runs])
    for (number, model, command), (status, notes) in zip(runs, found, strict=True):
        assert status == 0, (command, notes)
        if model == "r":
            # The bytes may differ, because the file contains the times of the epochs.
            OrdinalRecommender.load(f"{number}.r")
        else:
            assert Path(f"{number}.{model}").read_bytes() == Path(model).read_bytes(), command


@pytest.mark.parametrize(
    "command",
    [
        "fit -q rows.npz model",
        "tag train -q -t template tokens model",
        "tag predict tokens tagger model",
        "recommend --quiet --likes --data ratings.csv --save model",
    ],
)
def test_the_error_of_a_full_disk_names_the_file(folder: Path, command: str) -> None:
    script = f"""
import os, subprocess, sys
import numpy as np
rng = np.random.default_rng(0)
np.savez("rows.npz", X=rng.normal(size=(60, 1000)), y=rng.integers(3, size=60))
open("template", "w").write("U00:%x[0,0]\\n")
words = "".join(f"w{{at}}-{{'long' * 30}} {{'DN'[at % 2]}}\\n\\n" for at in range(500))
open("tokens", "w").write(words)
pairs = "".join(f"{{at % 499}},i{{at}}\\n" for at in range(1000))
open("ratings.csv", "w").write("user,item\\n" + pairs)
run = {sys.executable!r}, "-m", "dualgap.cli"
if "tagger" in {command!r}:
    train = "tag train -q -p 1 -t template tokens tagger"
    subprocess.run([*run, *train.split()], check=True, stdout=-1)
before = sorted(os.listdir("."))
with open("filler", "wb", buffering=0) as file:
    try:
        while file.write(b"x" * 4096):
            pass
    except OSError:
        pass
    file.truncate(file.tell() - 8192)
result = subprocess.run([*run, *{command!r}.split()], capture_output=True, text=True)
os.remove("filler")
print(result.returncode, result.stderr, sorted(os.listdir(".")) == before)
"""
    result = run_on_small_disk(script, folder)
    assert result.stdout.startswith("1 error: [Errno 28] No space left on device: "), result
    assert result.stdout.endswith("/model'\n True\n"), result
