"""The command `dualgap recommend`."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import pandas as pd
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dualgap._choices import Ranking
from dualgap.cli._paths import FileCommand, Input, Output
from dualgap.cli._ratings_file import FileColumns, read_ratings_file
from dualgap.cli._terminal import errors, exit_codes, require_stdout
from dualgap.datasets import Ratings, fetch_movielens
from dualgap.recommend import OrdinalRecommender, Variational
from dualgap.recommend.comparison import Row, compare, split_ratings


@click.command(cls=FileCommand)
@click.option(
    "--data",
    type=Input(),
    help="MovieLens data set (100k, the default; 1m; latest-small), a folder or file in a "
    "MovieLens format, or a CSV, TSV or Parquet file with the columns below.",
)
@click.option("--user-column", help="Column of the users (with --no-header, its number, from 1).")
@click.option("--item-column", help="Column of the items.")
@click.option("--rating-column", help="Column of the ratings.")
@click.option("--timestamp-column", help="Column of the times, numbers or dates (optional).")
@click.option(
    "--no-header", is_flag=True, help="The file has no header: its first line is a rating."
)
@click.option(
    "--likes",
    is_flag=True,
    help="Every row is an interaction, such as a click or purchase: rank items by how likely the "
    "user is to choose them, and predict no ratings.",
)
@click.option("--user", "users", multiple=True, help="Recommend for this user (repeatable).")
@click.option(
    "--top", default=10, show_default=True, type=click.IntRange(min=1), help="Items per user."
)
@click.option(
    "--rank-by",
    type=click.Choice(["like", "rating"]),
    help="Rank by how likely the user is to choose and like an item, or by its expected rating "
    "(the default without --likes).",
)
@click.option(
    "--save", type=Output(dir_okay=False, path_type=Path), help="Save the model to this file."
)
@click.option(
    "--load",
    type=Input(exists=True, dir_okay=False, path_type=Path),
    help="Load the model from this file instead of fitting one.",
)
@click.option(
    "--output",
    type=click.Choice(["table", "csv", "json"]),
    default="table",
    show_default=True,
    help="Format of the recommendations on standard output.",
)
@click.option("--history", is_flag=True, help="Use rating histories as features.")
@click.option(
    "--time-features",
    is_flag=True,
    help="Model how users and items change over time (requires a timestamp column).",
)
@click.option(
    "--evaluate",
    is_flag=True,
    help="Hold out 25 % of the ratings for validation and 25 % for testing, and print test "
    "metrics.",
)
@click.option(
    "--compare", "comparing", is_flag=True, help="Compare with baselines (implies --evaluate)."
)
@click.option(
    "--plot",
    type=Output(dir_okay=False, path_type=Path),
    help="With --compare: save a plot of the comparison to this image file.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of the split and of the fit.")
@click.option(
    "--n-jobs", default=-1, show_default=True, help="Number of threads; -1 for all cores."
)
@click.option("--quiet", is_flag=True, help="Print results only.")
def recommend(**options: Any) -> None:
    """Fit a recommender to ratings and recommend items.

    Exit status: 0 on success, 1 if the data cannot be loaded or used, 2 for a usage error, 130 if
    interrupted.
    """
    columns = FileColumns(
        user=options.pop("user_column"),
        item=options.pop("item_column"),
        rating=options.pop("rating_column"),
        timestamp=options.pop("timestamp_column"),
        header=not options.pop("no_header"),
    )
    chosen = _Options(columns=columns, **options)
    chosen.check()
    notes = Console(stderr=True, highlight=False, quiet=chosen.quiet)
    with exit_codes():
        if chosen.users:
            require_stdout()
        if chosen.load is not None:
            model = OrdinalRecommender.load(chosen.load)
            # Use titles only with the data that they belong to: ids of other data must not get
            # MovieLens titles.
            ratings = None if chosen.data is None else _fetch(chosen, notes)
        else:
            ratings = _fetch(chosen, notes)
            model = _fit_all(ratings.ratings, chosen, notes)
        if chosen.save is not None:
            chosen.save.parent.mkdir(parents=True, exist_ok=True)
            model.save(chosen.save)
            notes.print(f"model written to {chosen.save}", markup=False, soft_wrap=True)
        if chosen.users:
            _print_recommendations(model, ratings, chosen)


@dataclass(frozen=True)
class _Options:
    """Parsed options of the command."""

    data: str | None
    columns: FileColumns
    likes: bool
    users: tuple[str, ...]
    top: int
    rank_by: Ranking | None
    save: Path | None
    load: Path | None
    output: str
    history: bool
    time_features: bool
    evaluate: bool
    comparing: bool
    plot: Path | None
    seed: int
    n_jobs: int
    quiet: bool

    def check(self) -> None:
        """Raise an error for options that cannot be combined."""
        if self.plot is not None and not self.comparing:
            raise click.UsageError("--plot requires --compare")
        if self.plot is not None and find_spec("matplotlib") is None:
            # Checked before the comparison, which takes a long time.
            raise click.UsageError("--plot requires matplotlib: pip install 'dualgap[plot]'")
        if self.load is not None and (self.comparing or self.save is not None):
            raise click.UsageError("--load cannot be combined with --compare or --save")
        if self.load is not None and self.evaluate:
            raise click.UsageError(
                "--load cannot be combined with --evaluate: the model was fitted to some of the "
                "ratings that would be held out"
            )
        if self.likes and self.time_features:
            raise click.UsageError("--likes cannot be combined with --time-features")
        if self.likes and (self.comparing or self.rank_by == "rating"):
            raise click.UsageError("--likes cannot be combined with --compare or --rank-by rating")


def _fit_all(ratings: pd.DataFrame, chosen: _Options, notes: Console) -> OrdinalRecommender:
    """Evaluate and compare on a split if requested; then fit to all ratings if needed."""
    evaluate = chosen.evaluate or chosen.comparing
    if evaluate:
        train, validation, test = split_ratings(ratings, chosen.seed)
        notes.print(
            f"{len(train)} ratings to train on, {len(validation)} to validate, {len(test)} to test"
        )
        if chosen.comparing:
            _compare(train, validation, test, chosen, notes)
        model = _fit(train, chosen)
        found = model.evaluate(test, unknown="ignore")
        metrics = "  ".join(f"{name} {value:.4f}" for name, value in found.items())
        # The metrics are a result, so --quiet keeps them. Standard output is for recommendations.
        errors.print(f"held-out ratings: {metrics}", soft_wrap=True)
        if chosen.save is None and not chosen.users:
            return model
        # Recommendations and saved models must use all ratings.
        notes.print(f"fitting to all {len(ratings)} ratings")
    return _fit(ratings, chosen)


def _fetch(chosen: _Options, notes: Console) -> Ratings:
    data = "100k" if chosen.data is None else chosen.data
    logger = logging.getLogger("dualgap")
    level = logger.level
    if notes.quiet:
        logger.setLevel(logging.ERROR)
    try:
        if chosen.columns.given or chosen.likes or Path(data).suffix == ".parquet":
            ratings = read_ratings_file(Path(data), chosen.columns, likes=chosen.likes)
        else:
            ratings = fetch_movielens(data)
    finally:
        logger.setLevel(level)
    table = ratings.ratings
    notes.print(
        f"{ratings.name}: {len(table)} ratings of {table['item'].nunique()} items by "
        f"{table['user'].nunique()} users (from {ratings.source})",
        markup=False,
        soft_wrap=True,
    )
    return ratings


def _fit(train: pd.DataFrame, chosen: _Options) -> OrdinalRecommender:
    model = OrdinalRecommender(
        method=Variational(),
        task="clicks" if chosen.likes else "ordinal",
        history_features=chosen.history,
        time_features=chosen.time_features,
        random_state=chosen.seed,
        n_jobs=chosen.n_jobs,
        verbose=0 if chosen.quiet else None,
    )
    return model.fit(train)


def _compare(
    train: pd.DataFrame,
    validation: pd.DataFrame,
    test: pd.DataFrame,
    chosen: _Options,
    notes: Console,
) -> None:
    to_stderr, plot = chosen.output != "table", chosen.plot
    # In csv and json format, standard output must contain only recommendations.
    columns = ("RMSE", "nDCG@1", "nDCG@5", "recall@10", "nDCG@10", "seconds", "bases")
    widths = (8, 8, 8, 11, 9, 9, 7)
    heads = (f"{name:>{width}s}" for name, width in zip(columns, widths, strict=True))
    click.echo(f"{'':44s}{''.join(heads)}", err=to_stderr)

    def report(row: Row) -> None:
        metrics = (row.rmse, row.ndcg1, row.ndcg5, row.recall10, row.catalogue_ndcg10)
        cells = ["-" if value is None else f"{value:.4f}" for value in metrics]
        cells += [f"{row.seconds:.2f}", "-" if row.n_bases is None else str(row.n_bases)]
        line = (f"{cell:>{width}s}" for cell, width in zip(cells, widths, strict=True))
        click.echo(f"{row.name:44s}{''.join(line)}", err=to_stderr)

    result = compare(
        train, validation, test, random_state=chosen.seed, n_jobs=chosen.n_jobs, report=report
    )
    if plot is not None:
        plot.parent.mkdir(parents=True, exist_ok=True)
        result.plot(plot)
        notes.print(f"plot written to {plot}", markup=False, soft_wrap=True)


def _print_recommendations(
    model: OrdinalRecommender, ratings: Ratings | None, chosen: _Options
) -> None:
    known = model.user_ids_
    # Arguments are strings, but ids in the data may be integers.
    names: list[Any] = list(chosen.users)
    if known.dtype.kind in "iu":
        names = [int(user) if re.fullmatch("-?[0-9]+", user) else user for user in names]
    unknown = [user for user in names if user not in known]
    if unknown:
        msg = f"--user: {unknown[0]!r} is not one of the {len(known)} users in the ratings"
        raise ValueError(msg)
    table = model.recommend(names, chosen.top, rank_by=chosen.rank_by)
    output = chosen.output
    if ratings is not None and ratings.items is not None:
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
