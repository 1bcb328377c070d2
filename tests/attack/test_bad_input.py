"""Input that is damaged, hostile or absurd ends in a message that names the place and shows nothing of a record."""

from __future__ import annotations

import gzip
import io
import itertools
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from das import cli
from das.checks import check
from das.demo.starter import write_starter
from das.errors import BudgetError, ConfigError, ProblemsFound
from das.plan import presets, toml_file
from das.plan.load import load
from das.release import finish
from das.report.progress import Bars
from das.storage.run_identity import RunIdentity
from geography import reading

SECRET = "73819264"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return write_starter(tmp_path / "input")


def alter(config: Path, old: str, new: str) -> None:
    text = config.read_text()
    assert text.count(old) == 1
    config.write_text(text.replace(old, new))


def problems_of(config: Path) -> tuple[int, list[str]]:
    """Exit code and messages of a check; none and 0 where all fits together."""
    try:
        check(load(config))
    except ProblemsFound as found:
        return found.exit_code, [str(problem) for problem in found.problems]
    return 0, []


# -- gzip --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["people.csv", "places.csv"])
def test_every_damage_to_a_gzip_file_is_a_message(config: Path, file: str) -> None:
    """Every byte flipped, and every length: what still unpacks to the same text is accepted, all else named."""
    alter(config, f'"{file}"', f'"{file}.gz"')
    plain = config.parent / file
    packed, path = gzip.compress(plain.read_bytes(), mtime=0), plain.with_name(f"{file}.gz")
    step = max(1, len(packed) // 60)
    damaged = [packed[:i] + bytes([packed[i] ^ 0x55]) + packed[i + 1 :] for i in range(0, len(packed), step)]
    damaged += [packed[:i] for i in range(0, len(packed), step)]
    damaged += [packed + b"garbage", packed + packed[:30], gzip.compress(packed, mtime=0), plain.read_bytes()]
    accepted = 0
    for content in damaged:
        path.write_bytes(content)
        code, messages = problems_of(config)
        if code == 0:
            accepted += 1  # a byte of the header that says nothing about the contents
            continue
        assert code == 3
        assert all(file in message for message in messages)
    assert accepted <= 8
    path.write_bytes(packed[: len(packed) // 2])
    (message,) = problems_of(config)[1]
    assert f"its gzip data end too early, after byte {len(packed) // 2}" in message
    assert message.endswith("the file again")


def test_a_gzip_bomb_is_not_unpacked_into_memory(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty-two megabytes of nothing in thirty-two kilobytes; without a line end, and in rows that are no rows."""
    assert problems_of(config) == (0, [])  # what is imported on the way is not counted below
    before = pa.total_allocated_bytes()
    for file in ("people.csv", "places.csv"):
        alter(config, f'"{file}"', f'"{file}.gz"')
        path = config.parent / f"{file}.gz"
        good = (config.parent / file).read_bytes()
        path.write_bytes(gzip.compress(bytes(32 << 20), mtime=0))
        tracemalloc.start()
        code, messages = problems_of(config)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert (code, peak < 24 << 20) == (3, True)
        assert any("row 1 does not end" in message for message in messages)
        path.write_bytes(gzip.compress(good, mtime=0))
    rows = config.parent / "places.csv.gz"
    rows.write_bytes(gzip.compress(b"province,district,village\n" + b"N,N1,N11\n" * (1 << 19), mtime=0))
    monkeypatch.setattr(reading, "UNPACKED_BYTES", 1 << 20)
    assert "unpacks to more than 200 times its size" in problems_of(config)[1][0]
    assert pa.total_allocated_bytes() - before < 64 << 20


# -- text --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["people.csv", "places.csv"])
@pytest.mark.parametrize("row", ["\xe9,x,y", "\xe9", "\xff\xfe,\xff,\xff,\xff"], ids=["even", "short", "long"])
def test_text_that_is_not_utf_8_is_named_by_its_row(
    config: Path, file: str, row: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Arrow itself writes a traceback where a row has both faults."""
    path = config.parent / file
    path.write_bytes(path.read_bytes() + row.encode("latin-1") + b"\n")
    lines = path.read_bytes().count(b"\n")
    code, messages = problems_of(config)
    assert code == 3
    assert f"row {lines} is not UTF-8 text" in messages[0]
    assert capfd.readouterr() == ("", "")


def test_codes_that_no_code_can_be(config: Path) -> None:
    """A code without end takes the memory of all; a NUL at its end is lost; a spreadsheet computes a formula."""
    places = config.parent / "places.csv"
    good = places.read_text()
    for code, reason in {
        "x" * 100_000: "is longer than 200 characters",
        "N99\0": "holds a control character",
        "=1+1": "is a formula to a spreadsheet",
        "-2+3": "is a formula to a spreadsheet",
        "@SUM(A1)": "is a formula to a spreadsheet",
    }.items():
        places.write_text(f"{good}N,N1,{code}\n")
        exit_code, messages = problems_of(config)
        assert exit_code == 3
        assert f"row 11: 'village' {reason}" in messages[0]
    places.write_text(good + "N,N1,-5\nN,N1,N-1\n")
    assert problems_of(config) == (0, [])


def test_a_record_is_never_shown(config: Path) -> None:
    """Not its label, not its place, not what a lost header or a lost comma puts in the place of another."""
    people = config.parent / "people.csv"
    good = people.read_text()
    for content in (
        good + f"{SECRET},f,0-14\n",
        good + f"N11,{SECRET},0-14\n",
        good + f'N11,f,"{SECRET},3"\n',
        good + f"N11,f,0-14,{SECRET}\n",
        f"N11,{SECRET},{SECRET}\n" + good.split("\n", 1)[1],
        f"{SECRET}\n" + good,
        f'village,sex,age,"{SECRET}\n' + good,
    ):
        people.write_text(content)
        code, messages = problems_of(config)
        assert code == 3
        assert SECRET not in "".join(messages)


# -- configs -----------------------------------------------------------------------------------------------------------

ABSURD: dict[str, tuple[bytes, str]] = {
    "a number of 5,000 digits": (b"x = " + b"1" * 5000, "holds a number or a date that cannot be read"),
    "a budget of 4,000 digits": (b"[input]\nbudget = " + b"1" * 4000, "input.budget: has more digits"),
    "lists in lists": (b"x = " + b"[" * 5000, "nests tables or lists too deeply"),
    "tables in tables": (b"x = " + b"{a=" * 5000, "nests tables or lists too deeply"),
    "a NUL": (b"x = \0", "is not valid TOML"),
    "a NUL in a file's name": (b'[input]\nmicrodata = "a\\u0000b.csv"', "a file's name holds a control character"),
    "a file's name without end": (
        b'[input]\nmicrodata = "' + b"x" * 5000 + b'"',
        "is too long to be the name of a file",
    ),
    "utf-16": ("x = 1".encode("utf-16"), "line 1 is not UTF-8 text"),
    "latin-1": (b"x = 1\ny = '\xe9'", "line 2 is not UTF-8 text"),
    "seventeen megabytes": (b"x = 1\n" + b"#" * (17 << 20), "is too long to be a config"),
    "a formula": (
        b'[[schema.attribute]]\nname = "sex"\nlabels = ["f", "=HYPERLINK(A1)"]',
        "schema.attribute.1.labels.2: '=HYPERLINK(A1)' is a formula to a spreadsheet",
    ),
    "a formula of a recode": (
        b'[[schema.attribute]]\nname = "sex"\nlabels = ["f"]\nrecodes.all = { "+cmd|x" = ["f"] }',
        "is a formula to a spreadsheet",
    ),
    "a control character": (
        b'[[schema.attribute]]\nname = "sex"\nlabels = ["f", "m\\r"]',
        "holds a control character",
    ),
    "a list for a table": (b"release = []", "release: must be a table"),
}


@pytest.mark.parametrize("kind", ABSURD)
def test_an_absurd_config_is_a_message(kind: str, tmp_path: Path) -> None:
    content, reason = ABSURD[kind]
    path = tmp_path / "config.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        load(path)
    lines = str(refused.value).splitlines()
    assert any(reason in line for line in lines)
    assert len(lines) == len(refused.value.problems)
    assert all(line.isprintable() and len(line) <= 2000 for line in lines)


@pytest.mark.parametrize("budget", ["1e-30", "1e-99", "1/" + "7" * 150])
def test_noise_that_does_not_fit_any_count_is_refused_before_anything_is_charged(config: Path, budget: str) -> None:
    alter(config, 'epsilon = "2"', f'epsilon = "{budget}"')
    code, messages = problems_of(config)
    assert code == 2
    assert all("its noise would be far larger than any population" in message for message in messages)


@pytest.mark.parametrize("pattern", ["/", ".", "..", "a**b", "people.csv/x"])
def test_what_is_no_pattern_names_no_file(config: Path, pattern: str) -> None:
    alter(config, '"people.csv"', f'"{pattern}"')
    code, messages = problems_of(config)
    assert code == 3
    assert "no such file" in messages[0]


def test_brackets_in_strings_and_comments_do_not_nest() -> None:
    """Half-open intervals are labels that somebody may want."""
    intervals = ", ".join(f"\"[{age}, {age + 1})\", '['" for age in range(100))
    text = f"labels = [{intervals}]  # [[[[[[\n" + 'a = """' + "[" * 99 + '"""\n' + "b = @@@" + "{" * 99 + "@@@\n"
    assert toml_file.depth(text.replace("@@@", "'" * 3)) == 1
    assert toml_file.depth("x = [[{a = [1]}, [2]]]") == 4


def test_shipped_labels_and_signed_numbers_are_no_formulas(config: Path) -> None:
    for name in presets.names():
        assert load(name).name
    alter(config, '["0-14", "15-24", "25-64", "65+"]', '["0-14", "-5", "+64", "65+", "<5", "-"]')
    alter(config, 'adult = ["15-24", "25-64", "65+"]', 'adult = ["-5", "+64", "65+", "<5", "-"]')
    assert load(config).schema.attribute("age").labels == ("0-14", "-5", "+64", "65+", "<5", "-")


# -- keys, messages, clocks --------------------------------------------------------------------------------------------


def test_a_text_is_not_taken_for_a_list_of_problems() -> None:
    """A runner wraps an error in the same type with a text of its own; each character was shown as a problem."""
    with pytest.raises(TypeError, match="not of text"):
        ProblemsFound("run key: it has 5 bytes [while running 'measure']")  # type: ignore[arg-type]


def test_a_damaged_key_is_one_message(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    reserve: Callable[..., None] = RunIdentity.reserve

    def reserve_and_lose(self: RunIdentity, *arguments: object, **named: object) -> None:
        reserve(self, *arguments, **named)
        key = self.layout.confidential.key
        key.write_bytes(key.read_bytes()[:5])

    monkeypatch.setattr(RunIdentity, "reserve", reserve_and_lose)
    with pytest.raises(SystemExit) as ended:
        cli.main(["measure", str(config), "--out", str(out)])
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("das: ")]
    assert ended.value.code == BudgetError.exit_code
    assert len(lines) == 1
    assert "the run's key is damaged: it has 5 bytes, not 32; restore it" in lines[0]
    assert not (out / "release" / "measurements").exists()


def test_a_clock_that_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run does not end before it began, and a progress bar goes on, with a time that is not negative."""
    assert finish._finished("2999-01-01") == "2999-01-01"
    assert "2026-01-01" < finish._finished("2026-01-01") < "2999"
    hours = itertools.count(100, -1)
    monkeypatch.setattr(time, "time", lambda: 3600.0 * next(hours))
    shown = io.StringIO()
    monkeypatch.setattr("sys.stderr", shown)
    bars = Bars()
    for done in range(4):
        bars.tell("estimate", done, 3)
    bars.close()
    assert all(f"{done}/3, 00:00" in shown.getvalue() for done in range(4))
    assert "-" not in shown.getvalue()
