"""The documentation does not lie: commands and Python run, links lead somewhere, keys are those of a config."""

from __future__ import annotations

import doctest
import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner

from das import cli
from das.demo.starter import write_starter

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
TITLE = re.compile(r"title=\"(add to )?([^\"]+)\"")
LINK = re.compile(r"(?<!`)\]\(([^)#\s]+)(?:#[^)]*)?\)|<img src=\"([^\"]+)\"")
LONGEST_README = 200
GENERATED = {"docs/reference/keys.md", "docs/reference/options.md", "docs/proofs/index.md"}
"""Pages that `scripts/docs` writes; the build of the site checks links to them."""

NOT_RUN = {
    r"^bash scripts/": "sets up, builds, or starts a cluster: CI runs each of them",
    r"--runner=(flink|spark)": "needs the cluster: tests/pipeline has it",
}
"""Commands that pages show and that are looked up only, with the reason; all others are executed."""

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


def blocks(page: Path, language: str) -> list[str]:
    return [text for kind, _, text in BLOCK.findall(page.read_text(encoding="utf-8")) if kind == language]


def commands(page: Path) -> list[list[str]]:
    """Lines that a person types: those behind a ``$`` in console blocks, all in bash blocks."""
    console = (line for text in blocks(page, "console") for line in text.splitlines())
    typed = [line.removeprefix("$ ") for line in console if line[:2] == "$ "]
    typed += [line for kind in ("bash", "sh", "shell") for text in blocks(page, kind) for line in text.splitlines()]
    parts = [part for line in typed for part in re.split(r"&&|\|\||[|;]", line)]
    return [words for part in parts if (words := shlex.split(part, comments=True))]


@pytest.fixture(scope="module")
def shared_country(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The starter, released once for all pages that use `country/out`."""
    folder = tmp_path_factory.mktemp("shared")
    for line in (f"das init {folder}/country", f"das run {folder}/country/config.toml --out {folder}/country/out"):
        typed(line)
    return folder / "country"


def typed(line: str) -> str:
    """Run one command as it is typed, in this process; return what it printed."""
    words = shlex.split(line, comments=True)
    assert words[0] == "das", f"{line}: neither a command of das nor named in NOT_RUN"
    result = CliRunner().invoke(cli.das, words[1:], prog_name="das")
    assert result.exit_code == 0, f"{line}\n{result.output}\n{result.exception}"
    return result.output


def run_console(text: str) -> None:
    """Run the commands of a console block; what a page shows below a command, it prints."""
    printed = ""
    for line in text.splitlines():
        if line.startswith("$ "):
            command = line.removeprefix("$ ")
            skipped = any(re.search(pattern, command) for pattern in NOT_RUN)
            printed = line if skipped else typed(command)
        elif line.strip() not in ("", "..."):
            assert line.rstrip() in [shown.rstrip() for shown in printed.splitlines()], f"not printed: {line}"


def run_block(kind: str, info: str, text: str, names: dict[str, object], page: Path) -> None:
    """Do what a reader does with a block: type it, execute it, or save it under its title."""
    title = TITLE.search(info)
    if kind == "console":
        run_console(text)
    elif kind == "python":
        exec(compile(text, f"{page.name}, python block", "exec"), names)
    elif title:
        file = Path(title.group(2))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text((file.read_text() + "\n" if title.group(1) else "") + text)
    elif kind == "toml":
        tomllib.loads(text)


def takes_long(page: Path) -> bool:
    """Whether it makes a release, or compiles the kernels of the congenial sampler."""
    text = "".join(
        text for kind, _, text in BLOCK.findall(page.read_text(encoding="utf-8")) if kind in ("console", "python")
    )
    return any(word in text for word in ("country/", "das ", "das.congenial"))


def page_parameters() -> list[Any]:
    slow = pytest.mark.slow
    return [
        pytest.param(page, id=page.relative_to(ROOT).as_posix(), marks=[slow] if takes_long(page) else [])
        for page in PAGES
    ]


@pytest.mark.parametrize("page", page_parameters())
def test_blocks_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """One after the other, as somebody would type them, in a folder of the page's own."""
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    shown = "".join(text for _, _, text in found)
    if "country/out" in shown and "das init country" not in shown:
        shutil.copytree(request.getfixturevalue("shared_country"), tmp_path / "country")
    elif "das init country" not in shown:
        write_starter(tmp_path / "country")
    (tmp_path / "config").symlink_to(ROOT / "config")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "documentation"}
    for kind, info, text in found:
        run_block(kind, info, text, names, page)


def test_every_exception_is_used() -> None:
    shown = [" ".join(words) for page in PAGES for words in commands(page)]
    assert [pattern for pattern in NOT_RUN if not any(re.search(pattern, line) for line in shown)] == []


def test_a_block_that_fails_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError, match="nowhere"):
        run_console("$ das check nowhere.toml\n")
    with pytest.raises(AssertionError, match="not printed: wrong"):
        run_console("$ das presets\nwrong\n")
    with pytest.raises(AssertionError, match="NOT_RUN"):
        run_console("$ rm -r /\n")


def missing(words: list[str]) -> str | None:
    """What is not there of a command that a page shows."""
    name = Path(words[0]).name
    if name in ("bash", "sh") and len(words) > 1 and words[1].startswith("scripts/"):
        return None if (ROOT / words[1]).is_file() else words[1]
    if name != "das":
        return None
    own = words[1 : words.index("--")] if "--" in words else words[1:]
    command: click.Command = cli.das
    for word in own:
        if isinstance(command, click.Group) and not word.startswith("-"):
            if word not in command.commands:
                return word
            command = command.commands[word]
    options = {option for o in command.params for option in (*o.opts, *o.secondary_opts)} | {"--help", "--debug"}
    return next((word for word in own if word.startswith("--") and word.split("=")[0] not in options), None)


@every_page
def test_commands_exist(page: Path) -> None:
    assert [(words, missing(words)) for words in commands(page) if missing(words)] == []


@pytest.mark.parametrize("line", ["das evaluat out", "das run c --outt d", "bash scripts/dem"])
def test_a_command_that_does_not_exist_is_found(line: str) -> None:
    assert missing(line.split())


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    targets = [first or second for first, second in LINK.findall(page.read_text(encoding="utf-8"))]
    local = [target for target in targets if "://" not in target]
    known = {ROOT / name for name in GENERATED}
    found = [(page.parent / target).resolve() for target in local]
    assert [str(target) for target in found if not target.exists() and target not in known] == []


def test_the_readme_is_short() -> None:
    assert len(PAGES[0].read_text(encoding="utf-8").splitlines()) <= LONGEST_README


@every_page
def test_sentences_are_short(page: Path) -> None:
    """Fewer than twenty words on average, in running text."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    prose = [
        line
        for line in text.splitlines()
        if line and not line.lstrip().startswith(("|", "#", "<", "$", ":", "=", "-", "*"))
    ]
    sentences = [each for each in re.split(r"(?<=[.:?!;])\s+", " ".join(prose)) if re.search(r"\w", each)]
    assert sum(len(each.split()) for each in sentences) < 20 * max(len(sentences), 1)


@pytest.fixture
def benchmarks() -> ModuleType:
    """`scripts/benchmarks`, as a module."""
    loader = SourceFileLoader("benchmarks", str(ROOT / "scripts" / "benchmarks"))
    module = module_from_spec(spec_from_loader("benchmarks", loader) or pytest.fail("is not there"))
    loader.exec_module(module)
    return module


def test_the_benchmark_page_is_what_the_script_writes(benchmarks: ModuleType) -> None:
    """Nobody edited a figure by hand: the kept results give the whole page."""
    assert benchmarks.page() == (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    kept = list((ROOT / "docs" / "measured").glob("*.json"))
    assert kept
    for path in kept:
        content = json.loads(path.read_bytes())
        assert re.fullmatch(r"das bench [a-z0-9]+( .*)? --json( -- .*)?", content["command"])
        assert {"date", "cpu", "cores", "memory_gb", "python", "load", "commit"} <= content["machine"].keys()


def test_a_benchmark_is_run_and_kept(benchmarks: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With command, date, machine, load and commit; a path of the machine is no part of it."""
    monkeypatch.setattr(benchmarks, "KEPT", tmp_path / "measured")
    monkeypatch.setattr(benchmarks, "PAGE", tmp_path / "page.md")
    printed = json.dumps([{"name": "a draw", "ours": 4.0, "peer": 2.0, "ratio": 2.0, "unit": "draws", "steps": [1]}])
    asked: list[list[str]] = []

    def run(call: list[str], **_: object) -> SimpleNamespace:
        if "git" in call:
            return SimpleNamespace(returncode=0, stdout="abc1234" if "rev-parse" in call else "")
        asked.append(call[call.index("bench") :])
        return SimpleNamespace(returncode=0, stdout=printed, stderr="")

    monkeypatch.setattr(benchmarks.subprocess, "run", run)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--keep-as", "real", "accuracy", "--counts", "/data/x.csv"])
    benchmarks.main()
    assert asked == [["bench", "accuracy", "--counts", "/data/x.csv", "--json"]]
    kept = json.loads((tmp_path / "measured" / "real.json").read_bytes())
    assert kept["command"] == "das bench accuracy --counts FILE --json"
    assert kept["rows"] == [{"name": "a draw", "ours": 4.0, "peer": 2.0, "ratio": 2.0, "unit": "draws"}]
    assert kept["machine"]["commit"] == "abc1234"
    assert (
        "In draws:\n\n| name | ours | peer | ratio |\n|---|---|---|---|\n| a draw | 4 | 2 | 2 |"
        in (tmp_path / "page.md").read_text()
    )

    (tmp_path / "printed.json").write_text(printed)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--printed", str(tmp_path / "printed.json"), "noise"])
    benchmarks.main()
    assert len(asked) == 1, "what was printed is not run again"
    page = (tmp_path / "page.md").read_text()
    assert "`das bench noise --json` on " in page
    assert "load not recorded" in page


@pytest.mark.parametrize("page", ["README.md", "docs/congenial.md"])
def test_figures_of_the_matched_comparison_are_those_that_were_measured(page: str) -> None:
    """A table that a page repeats has the numbers of the kept result, rounded."""
    rows = json.loads((ROOT / "docs" / "measured" / "matched.json").read_bytes())["rows"]
    text = (ROOT / page).read_text(encoding="utf-8")
    for label, key in (("congenial", "ours"), (r"nonnegative[- ](?:l2|least squares)", "peer")):
        line = re.search(rf"^\| `?{label}`? \|(.*)\|$", text, re.MULTILINE)
        assert line, f"{page}: no row of {label}"
        shown = [each.split("±")[0].strip() for each in line.group(1).split("|")]
        assert shown == [f"{row[key]:.{len(each.partition('.')[2])}f}" for row, each in zip(rows, shown, strict=True)]
    assert f"{rows[0]['effective_epsilon']:.3f}" in text


@pytest.mark.parametrize("name", ["typeset", "reference"])
def test_examples_of_the_site_modules(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "site"))
    failed, tried = doctest.testmod(importlib.import_module(name))
    assert (failed, tried > 0) == (0, True)


def test_every_key_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "site"))
    import keys
    import reference

    known = {name: {f.alias or key for key, f in model.model_fields.items()} for name, _, model in reference.sections()}
    assert {name: set(lines) for name, lines in keys.KEYS.items()} == known
    page = reference.keys_page()
    assert "| `rho` | fraction |" in page
    assert "## das query" in reference.options_page()


@pytest.mark.slow
def test_every_column_is_documented(shared_country: Path) -> None:
    """Columns of a release's files, but for those that a config names: attributes, recodes and answers."""
    import pyarrow.parquet as parquet

    page = (ROOT / "docs" / "files.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"`(\w+)`", page))
    release = shared_country / "out" / "release"
    own = {"sex", "age", "grown"}
    files = list(release.rglob("*.parquet"))
    assert {file.parent.name for file in files} >= {
        "tables",
        "measurements",
        "estimates",
        "counts",
        "facts",
        "microdata",
    }
    columns = {name for file in files for name in parquet.read_schema(file).names if "_by_" not in name} - own
    columns |= set(json.loads((release / "manifest.json").read_bytes())) | set(
        json.loads((release / "privacy.json").read_bytes())
    )
    assert columns - documented == set()


def completed(words: str, tmp_path: Path) -> list[str]:
    """What the shell offers after these words, by the script that the page says to source."""
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1), "_DAS_COMPLETE": "bash_complete"}
    call = [sys.executable, "-c", "from das.cli import main; main()"]
    shown = subprocess.run(call, env={**os.environ, **asked}, cwd=tmp_path, capture_output=True, text=True, check=True)
    return [line.partition(",")[2] for line in shown.stdout.splitlines()]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_is_written(shell: str, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "completion.md").read_text(encoding="utf-8")
    assert f"_DAS_COMPLETE={shell}_source das >" in page
    call = [sys.executable, "-c", "from das.cli import main; main()"]
    environment = {**os.environ, "_DAS_COMPLETE": f"{shell}_source"}
    script = subprocess.run(call, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert f"_DAS_COMPLETE={shell}_complete" in script
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_the_tab_key_completes(tmp_path: Path) -> None:
    assert completed("das qu", tmp_path) == ["query"]
    assert "--where" in completed("das query --w", tmp_path)


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """And asks the network for nothing: no page loads a script, a font or an image from elsewhere."""
    pytest.importorskip("mkdocs_autorefs", reason="the extra `docs` is not installed")
    call = ["bash", str(ROOT / "scripts" / "docs"), "--site-dir", str(tmp_path / "site")]
    built = subprocess.run(call, env={**os.environ, "DAS_PYTHON": sys.executable}, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 60
    remote = re.compile(r"<(?:script|img|link|iframe)[^>]*(?:src|href)=\"?(?:https?:)?//")
    assert [page.name for page in pages if remote.search(page.read_text(encoding="utf-8"))] == []
    proof = (tmp_path / "site" / "proofs" / "accounting" / "conversion.html").read_text(encoding="utf-8")
    assert "<math" in proof
    assert "arithmatex" not in proof
