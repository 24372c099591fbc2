"""Consistency of a release: pinned actions, one version, addresses."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import dualgap

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
yaml = pytest.importorskip("yaml")


def steps() -> list[dict[str, Any]]:
    found = []
    for path in WORKFLOWS:
        for job in yaml.safe_load(path.read_text("utf-8"))["jobs"].values():
            found += job["steps"]
    return found


def test_actions_are_pinned_by_their_hash() -> None:
    lines = [line for path in WORKFLOWS for line in path.read_text("utf-8").splitlines()]
    used = [line.split("uses: ")[1] for line in lines if "uses: " in line]
    assert len(used) > 10
    assert len(used) == sum("uses" in step for step in steps())
    for action in used:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action


def test_workflows_have_minimal_permissions() -> None:
    for path in WORKFLOWS:
        workflow = yaml.safe_load(path.read_text("utf-8"))
        assert workflow["permissions"] == {"contents": "read"}
        for name, job in workflow["jobs"].items():
            assert "permissions" not in job or name == "publish"
            assert job["timeout-minutes"] <= 120
    for step in steps():
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


def test_scripts_that_workflows_call_exist() -> None:
    called = {
        name for step in steps() for name in re.findall(r"scripts/[\w-]+(?:\.py)?", str(step))
    }
    assert {"scripts/check_wheel.py", "scripts/check-oldest"} <= called
    assert all((ROOT / name).exists() for name in called)
    targets = {
        name for step in steps() for name in re.findall(r"make (?:-C \w+ )?([\w -]+)", str(step))
    }
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for name in " ".join(targets).split():
        assert re.search(rf"^{name}:", makefile, re.M), name


def test_all_files_state_the_same_version() -> None:
    cargo = tomllib.loads((ROOT / "Cargo.toml").read_text("utf-8"))["package"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert cargo["version"] == citation["version"] == dualgap.__version__
    assert cargo["license"] == citation["license"]
    recipe = yaml.safe_load((ROOT / "recipe/recipe.yaml").read_text("utf-8"))
    assert cargo["version"] == recipe["context"]["version"]
    assert cargo["license"] == recipe["about"]["license"]
    toolchain = (ROOT / "scripts/toolchain").read_text("utf-8")
    assert f"Rust {cargo['rust-version']} or newer" in toolchain


def test_the_conda_package_has_the_dependencies_of_the_wheel() -> None:
    recipe = yaml.safe_load((ROOT / "recipe/recipe.yaml").read_text("utf-8"))
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    project = pyproject["project"]
    own = [f"python{project['requires-python']}", *project["dependencies"]]
    assert [name.replace(" ", "") for name in recipe["requirements"]["run"]] == own
    (builder,) = pyproject["build-system"]["requires"]
    assert builder in [name.replace(" ", "") for name in recipe["requirements"]["host"]]
    assert recipe["about"]["summary"] == project["description"]
    assert recipe["about"]["license_file"] == project["license-files"]


def test_the_address_of_the_repository_is_written_to_all_files() -> None:
    spec = importlib.util.spec_from_file_location("urls", ROOT / "scripts/project_urls.py")
    assert spec is not None
    assert spec.loader is not None
    urls: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(urls)
    address = "https://example.org/somebody/dualgap"
    before = (ROOT / "pyproject.toml").read_text("utf-8")
    after = tomllib.loads(urls.with_urls(before, address))
    assert after["project"].pop("urls")["Issues"] == f"{address}/issues"
    assert after == tomllib.loads(before)
    with pytest.raises(ValueError, match="already"):
        urls.with_urls(urls.with_urls(before, address), address)
    cargo = urls.with_repository((ROOT / "Cargo.toml").read_text("utf-8"), address)
    assert tomllib.loads(cargo)["package"]["repository"] == address
    readme = urls.with_absolute_links((ROOT / "README.md").read_text("utf-8"), address)
    assert f"{address}/raw/main/docs/pictures/speed.svg)" in readme
    assert f"]({address}/blob/main/docs/choosing.md)" in readme
    assert re.search(r"\]\((?!https://)", readme) is None
