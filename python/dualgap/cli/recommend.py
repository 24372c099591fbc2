"""The command `dualgap recommend`."""

from __future__ import annotations

import logging
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import pandas as pd
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from dualgap.cli._terminal import errors, exit_codes
from dualgap.datasets import Ratings, fetch_movielens
from dualgap.recommend import OrdinalRecommender, Variational
from dualgap.recommend.comparison import Row, compare, split_ratings


@click.command()
@click.option(
    "--data",
    default="100k",
    show_default=True,
    help="MovieLens data set (100k, 1m, latest-small), or a folder or file in one of its formats.",
)
@click.option("--user", "users", multiple=True, help="Recommend for this user (repeatable).")
@click.option(
    "--top", default=10, show_default=True, type=click.IntRange(min=1), help="Items per user."
)
@click.option(
    "--save", type=click.Path(dir_okay=False, path_type=Path), help="Write the model here."
)
@click.option(
    "--load",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Read the model from here instead of fitting one.",
)
@click.option(
    "--output",
    type=click.Choice(["table", "csv", "json"]),
    default="table",
    show_default=True,
    help="Form of the recommendations on standard output.",
)
@click.option("--history", is_flag=True, help="Use rating histories as features.")
@click.option(
    "--evaluate",
    is_flag=True,
    help="Hold out 25 % of the ratings for validation and 25 % for a test, and print its metrics.",
)
@click.option(
    "--compare", "comparing", is_flag=True, help="Compare with baselines (implies --evaluate)."
)
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    help="With --compare: write the validation curves to this picture.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of the split and of the fit.")
@click.option(
    "--n-jobs", default=-1, show_default=True, help="Number of threads; -1 for all cores."
)
@click.option("--quiet", is_flag=True, help="Print results only.")
def recommend(
    data: str,
    users: tuple[str, ...],
    top: int,
    save: Path | None,
    load: Path | None,
    output: str,
    history: bool,
    evaluate: bool,
    comparing: bool,
    plot: Path | None,
    seed: int,
    n_jobs: int,
    quiet: bool,
) -> None:
    """Fit a recommender to ratings and recommend items.

    Exit status: 0 on success, 1 if the data cannot be had or used, 2 for a usage error, 130 if
    interrupted.
    """
    if plot is not None and not comparing:
        raise click.UsageError("--plot needs --compare")
    if plot is not None and find_spec("matplotlib") is None:
        # Said before the comparison, not after it.
        raise click.UsageError("--plot needs matplotlib: pip install 'dualgap[plot]'")
    if load is not None and (comparing or save is not None):
        raise click.UsageError("--load cannot be combined with --compare or --save")
    notes = Console(stderr=True, highlight=False, quiet=quiet)
    with exit_codes():
        ratings = _fetch(data, notes)
        train = ratings.ratings
        test = None
        if evaluate or comparing:
            train, validation, test = split_ratings(ratings.ratings, seed)
            notes.print(
                f"{len(train)} ratings to train on, {len(validation)} to validate, "
                f"{len(test)} to test"
            )
        if comparing:
            assert test is not None
            _compare(
                train, validation, test, plot, seed, n_jobs, notes, to_stderr=output != "table"
            )
        if load is not None:
            model = OrdinalRecommender.load(load)
        else:
            model = _fit(train, history, seed, n_jobs, notes)
        if test is not None:
            metrics = "  ".join(
                f"{name} {value:.4f}" for name, value in model.evaluate(test).items()
            )
            # A result, which --quiet leaves; standard output is for the recommendations.
            errors.print(f"held-out ratings: {metrics}", soft_wrap=True)
        if save is not None:
            save.parent.mkdir(parents=True, exist_ok=True)
            model.save(save)
            notes.print(f"model written to {save}", markup=False, soft_wrap=True)
        if users:
            _print_recommendations(model, ratings, users, top, output)


def _fetch(data: str, notes: Console) -> Ratings:
    logger = logging.getLogger("dualgap")
    if notes.quiet:
        logger.setLevel(logging.ERROR)
    ratings = fetch_movielens(data)
    table = ratings.ratings
    notes.print(
        f"{ratings.name}: {len(table)} ratings of {table['item'].nunique()} items by "
        f"{table['user'].nunique()} users (from {ratings.source})",
        markup=False,
        soft_wrap=True,
    )
    return ratings


def _fit(
    train: pd.DataFrame, history: bool, seed: int, n_jobs: int, notes: Console
) -> OrdinalRecommender:
    method = Variational()
    model = OrdinalRecommender(
        method=method, history_features=history, random_state=seed, n_jobs=n_jobs
    )
    bar = Progress(
        TextColumn("fitting"),
        BarColumn(),
        TextColumn("objective {task.fields[objective]:.0f}"),
        TimeElapsedColumn(),
        console=notes,
        # Only where somebody can watch it.
        disable=not notes.is_terminal or notes.quiet,
        transient=True,
    )
    with bar:
        task = bar.add_task("", total=method.n_models * method.n_sweeps, objective=float("nan"))

        def advance(_epoch: int, _seconds: float, objective: float, _dual: float) -> bool:
            bar.update(task, advance=1, objective=objective)
            return False

        model.set_params(callback=advance).fit(train)
    model.set_params(callback=None)
    return model


def _compare(
    train: pd.DataFrame,
    validation: pd.DataFrame,
    test: pd.DataFrame,
    plot: Path | None,
    seed: int,
    n_jobs: int,
    notes: Console,
    *,
    to_stderr: bool,
) -> None:
    # Standard output belongs to the recommendations where a program reads them.
    click.echo(
        f"{'':44s}{'RMSE':>7s}{'nDCG@1':>8s}{'nDCG@5':>8s}{'seconds':>9s}{'bases':>7s}",
        err=to_stderr,
    )

    def report(row: Row) -> None:
        bases = "-" if row.n_bases is None else str(row.n_bases)
        click.echo(
            f"{row.name:44s}{row.rmse:7.4f}{row.ndcg1:8.4f}{row.ndcg5:8.4f}"
            f"{row.seconds:9.2f}{bases:>7s}",
            err=to_stderr,
        )

    result = compare(train, validation, test, random_state=seed, n_jobs=n_jobs, report=report)
    if plot is not None:
        plot.parent.mkdir(parents=True, exist_ok=True)
        result.plot(plot)
        notes.print(f"validation curves written to {plot}", markup=False, soft_wrap=True)


def _print_recommendations(
    model: OrdinalRecommender, ratings: Ratings, users: tuple[str, ...], top: int, output: str
) -> None:
    known = model.user_ids_
    # The shell gives strings; the ids of the data may be numbers.
    names: list[Any] = list(users)
    if known.dtype.kind in "iu":
        names = [int(user) if re.fullmatch("-?[0-9]+", user) else user for user in users]
    table = model.recommend(names, top)
    if ratings.items is not None:
        items = ratings.items.set_index("item")
        titles = items["title"].astype("string")
        years = items["year"].astype("string")
        titles = titles.where(years.isna(), titles + " (" + years + ")")
        table.insert(3, "title", table["item"].map(titles))
    if output == "csv":
        click.echo(table.to_csv(index=False), nl=False)
    elif output == "json":
        click.echo(table.to_json(orient="records", force_ascii=False, indent=2))
    else:
        pretty = Table(box=None, pad_edge=False)
        for column in table.columns:
            pretty.add_column(column, justify="right" if column in ("rank", "score") else "left")
        for record in table.itertuples(index=False):
            cells = [f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in record]
            pretty.add_row(*map(escape, cells))
        Console(highlight=False).print(pretty)
