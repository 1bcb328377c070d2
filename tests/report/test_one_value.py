"""Terminal, page and JSON say the same: every number with its status and its condition, read back from all three."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from decimal import ROUND_CEILING, Context, Decimal
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from das.accounting.quote import quotes_of
from das.demo.starter import write_starter
from das.plan.geography import spine_of
from das.plan.load import load
from das.plan.plan import Plan
from das.plan.presets import folder
from das.promise.account import Account, account
from das.promise.account_page import described_as_one
from das.promise.joint import joint_account
from das.promise.sources import Source
from das.promise.statement import statement_of
from das.report.account_text import account_text
from das.report.privacy import render_privacy
from das.report.text import summary

BED = {"query": "sex", "level": "block", "sense": ">=", "source": "beds.csv"}
AGES = {"query": "age", "level": "block", "sense": ">=", "source": "ages.csv"}
TOTAL = {"query": "total", "level": "state", "reason": "seats"}
TREE = {
    "geolevels": {"state": "1/6", "county": "1/3", "block": "1/2"},
    "queries": {"all": {"total": "1"}, "block": {"sex": "1/2", "detailed": "1/2"}},
}
PRESENCE = {"framework": "zcdp", "rho": "1", "neighbours": "add-remove"}
PURE = {"framework": "pure", "epsilon": "2"}
COUNTRIES: dict[str, dict[str, Any]] = {
    "free": {},
    "an invariant": {"invariant": [TOTAL]},
    "a budget that is no binary fraction": {"privacy": {"framework": "zcdp", "rho": "48/25"}, "invariant": [TOTAL]},
    "a small budget": {"privacy": {"framework": "zcdp", "rho": "1/70000"}, "invariant": [TOTAL]},
    "a bound": {"invariant": [TOTAL], "bound": [BED]},
    "bounds that cross": {"bound": [BED, AGES]},
    "add-remove": {"privacy": PRESENCE},
    "add-remove and a bound": {"privacy": PRESENCE, "bound": [BED]},
    "pure": {"privacy": PURE, "bound": [BED]},
    "congenial": {"strategy": TREE, "estimate": {"method": "congenial"}, "invariant": [TOTAL], "bound": [BED]},
    "congenial and pure": {"strategy": TREE, "estimate": {"method": "congenial"}, "privacy": PURE, "bound": [BED]},
    "ragged": {
        "geography": {
            "crosswalk": "ragged.csv",
            "levels": [{"name": "state"}, {"name": "county"}, {"name": "block"}],
        },
        "invariant": [TOTAL],
    },
}


def plan_of(name: str, country: Any, tmp_path: Path) -> Plan:
    country.file("beds.csv", "geocode,f\n01001,1\n")
    country.file("ages.csv", "geocode,0-17\n01001,1\n")
    country.file("ragged.csv", "state,county,block\n0,01,01001\n0,01,01002\n0,,02001\n0,,02003\n1,11,11001\n")
    if name == "demo":
        return load(folder() / "demo.toml")
    if name == "starter":
        return load(write_starter(tmp_path / "starter"))
    if name in COUNTRIES:
        return country.plan(**COUNTRIES[name])
    return load(name)


def up(value: Any) -> str:
    """Three digits, three that count below 0.1, rounded up, by decimal arithmetic of its own; words stay."""
    if isinstance(value, str) and re.fullmatch(r"\d+(/\d+)?", value):
        above, _, below = value.partition("/")
        number = Context(prec=60, rounding=ROUND_CEILING).divide(Decimal(above), Decimal(below or "1"))
    elif isinstance(value, int | float):
        number = Decimal(repr(value))
    else:
        return "" if value == "-" else str(value or "")
    small = 0 < number < Decimal("0.1")
    last = Decimal(1).scaleb(number.adjusted() - 2 if small else -3)
    return f"{number.quantize(last, ROUND_CEILING):f}"


@dataclass(frozen=True)
class Said:
    """One number as somewhere said, and what it was computed from."""

    rho: str
    epsilon: str
    tight: str
    otherwise: str
    status: str
    condition: str


def said_in_json(statement: dict[str, Any]) -> dict[str, Said]:
    """What the file holds, read without the classes that wrote it."""
    out = {}
    for quote in quotes_of(statement):
        entry = next(e for e in entries(statement, quote.group) if all(e.get(k) == v for k, v in quote.about.items()))
        condition = entry.get("condition") or {}
        words = condition.get("words", "")
        if condition and condition["kind"] != "public facts ignored":
            assumed = f", if {condition['otherwise_if']}" if condition["otherwise_if"] else ""
            known = condition["otherwise_epsilon"] is not None
            words += f" ({condition['otherwise_status']}{assumed})" if known else " nothing"
        epsilon = entry.get("zcdp_epsilon") if quote.group == "tight" else entry["epsilon"]
        tight = entry["epsilon"] if quote.group == "tight" else entry.get("tight_epsilon")
        rho = "" if entry.get("rho") == "not supported" else up(entry.get("rho"))
        out[quote.name] = Said(
            rho, up(epsilon), up(tight), up(condition.get("otherwise_epsilon")), entry["status"], words
        )
    return out


def entries(statement: dict[str, Any], group: str) -> list[dict[str, Any]]:
    found = statement[group]
    return [found] if isinstance(found, dict) else found


def plain(note: str) -> str:
    """A footnote without the words that lead to the column of numbers."""
    return note.replace('; otherwise the number under "otherwise"', "").replace(
        "; otherwise nothing is claimed", " nothing"
    )


def said_on_terminal(text: str) -> dict[str, Said]:
    notes = dict(re.findall(r"^\[(\d+)\] (.+)$", text, re.MULTILINE))
    out = {}
    for line in text.splitlines()[1:]:
        if not line.strip() or len(line) < 114:
            break
        columns = [line[62 + 10 * k : 72 + 10 * k].strip() for k in range(5)]
        status, _, mark = line[114:].partition(" [")
        rho = columns[0].replace("-", "")
        out[line[:62].strip()] = Said(
            rho, columns[1], columns[2], columns[3], status, plain(notes[mark.rstrip("]")]) if mark else ""
        )
    return out


@dataclass
class Tables(HTMLParser):
    """Tables of a page by their caption: rows of cells, each a text; and the footnotes after them."""

    tables: dict[str, list[list[str]]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._open: list[str] = []
        self._text, self._caption, self._rows, self._note = "", "", [], ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("caption", "th", "td"):
            self._text = ""
        elif tag == "tr":
            self._rows.append([])
        elif tag == "table":
            self._rows = []
        elif tag == "span" and ("class", "meaning") in attrs:
            self._text += "|"
        elif tag == "span" and ("class", "condition") in attrs:
            self._note = " "

    def handle_endtag(self, tag: str) -> None:
        if tag == "caption":
            self._caption = self._text.strip()
        elif tag in ("th", "td"):
            self._rows[-1].append(" ".join(self._text.split()))
        elif tag == "table":
            self.tables[self._caption] = self._rows
        elif tag == "span" and self._note:
            mark, _, words = self._note.strip().partition("] ")
            self.notes[mark.strip("[")] = words.rstrip(".")
            self._note = ""

    def handle_data(self, data: str) -> None:
        self._text += data
        if self._note:
            self._note += data


def dash(text: str) -> str:
    return "" if text == "–" else {"∞": "infinite"}.get(text, text.replace(",", ""))


def without(text: str) -> str:
    return "" if text == "not supported" else text


def said_on_page(html: str, statement: dict[str, Any]) -> dict[str, Said]:
    page = Tables()
    page.feed(html)
    pure, out = statement["framework"] == "pure", {}
    for row in page.tables["How well one particular secret is kept, given the public facts"][1:]:
        if len(row) == 1:
            continue
        name, _, rest = row[0].partition("|")
        status = rest or "proved"
        name, _, mark = name.partition("[")
        rho, cells = ("–", row[1:]) if pure else (row[1], row[2:-1])
        epsilon, tight, otherwise = (cells[0], "–", cells[1]) if pure else (cells[0], cells[1], cells[2])
        condition = plain(page.notes[mark.rstrip("]")]) if mark else ""
        out[name] = Said(
            without(dash(rho)),
            dash(epsilon),
            dash(tight),
            dash(otherwise).replace("nothing", ""),
            status,
            condition,
        )
    families = page.tables["Epsilon of a shared secret, by the size of the family"]
    for k, row in enumerate(families[1:], 1):
        if row[0] == "|otherwise":
            continue
        name, _, status = row[0].partition("|")
        name, _, mark = name.partition("[")
        below = families[k + 1] if k + 1 < len(families) and families[k + 1][0] == "|otherwise" else None
        for column, size in enumerate(families[0][1:], 1):
            cell, _, other_mark = row[column].partition("|")[0].partition("[")
            if cell == "not supported":
                out[f"{size} people, each: {name}"] = Said("", "", "", "", cell, "")
                continue
            found = other_mark or mark
            out[f"{size} people, each: {name}"] = Said(
                "",
                dash(cell),
                "",
                dash(below[column]).replace("nothing", "") if below else "",
                status,
                plain(page.notes[found.rstrip("]")]) if found else "",
            )
    return out


def policies_on_page(html: str) -> list[list[str]]:
    page = Tables()
    page.feed(html)
    return page.tables["What is compared, and what stands behind the number"][1:]


def compare(plan: Plan) -> None:
    accounted = account(plan)
    statement = statement_of(plan, accounted, facts_digest=64 * "0", charged=plan.budget, seeded=False)
    compare_statement(accounted, statement, plan.to_json())
    # what a run prints: a choice of the numbers, none without its condition
    after = summary(statement, Path("out"))
    nominal = statement["nominal"]
    assert "rho" not in nominal or f"rho = {nominal['rho']} = {up(nominal['rho'])}" in after
    for entry in (*statement["secrets"][:1], *statement["secrets"][-1:]):
        condition = entry["condition"]
        line = next(line for line in after.splitlines() if entry["secret"] in line and "epsilon" in line)
        assert f"epsilon {up(entry['epsilon'])}" in line
        assert (
            (condition["words"] in line and up(condition["otherwise_epsilon"]) in line)
            if condition
            else "if" not in line
        )


def assert_added_delta(statement: dict[str, Any], text: str) -> None:
    """What the windows of a sampler add is said once, of families apart."""
    lines = [(q.group == "families", q.added_delta) for q in quotes_of(statement) if q.added_delta]
    if not lines:
        assert "which the sampler's windows add" not in text
    for family, words in ((False, "beside each effective epsilon"), (True, "beside those of families")):
        largest = max((added for of, added in lines if of is family), default=None)
        assert largest is None or f"at most {largest_text(largest)} {words}" in text


def largest_text(delta: float) -> str:
    """Three digits, rounded up, by decimal arithmetic of its own."""
    number = Context(prec=3, rounding=ROUND_CEILING).create_decimal(repr(delta)).normalize()
    digits = f"{number.scaleb(-number.adjusted()).normalize():f}"
    return f"{digits}e{number.adjusted()}"


def compare_statement(accounted: Account, statement: dict[str, Any], described: dict[str, Any]) -> None:
    truth = said_in_json(statement)
    assert len(truth) > 8
    terminal = said_on_terminal(account_text(accounted.nominal, accounted.sections))
    assert terminal == truth
    html = render_privacy(statement, described)
    page = said_on_page(html, statement)
    for text in (account_text(accounted.nominal, accounted.sections), unescape(html)):
        assert_added_delta(statement, text.replace("Delta: ", "delta: "))
    apart = {q.name for q in quotes_of({key: statement[key] for key in ("nominal", "tight", "effective")})}
    spaced: Callable[[str], str] = lambda text: text.replace("_", " ")  # noqa: E731 - one use, as the page writes names
    # the page has no rho of families, nor of pure promises
    families, pure = {q.name for q in quotes_of({"families": statement["families"]})}, described["framework"] == "pure"
    shown = {name: replace(said, rho="") if pure or name in families else said for name, said in truth.items()}
    assert page == {spaced(name): said for name, said in shown.items() if name not in apart}
    assert pure or any(said.rho for said in page.values())
    rows = policies_on_page(html)
    listed = [said for name, said in truth.items() if name in apart]
    assert len(rows) == len(listed)
    for row, said in zip(rows, listed, strict=True):
        epsilon = row[1] if pure else row[2]
        assert pure or without(dash(row[1])) == said.rho
        assert dash(epsilon) in (said.epsilon, said.tight)
        status, _, condition = row[-1].partition("|")
        assert status == said.status
        assert said.condition.partition(" (")[0] in condition.replace("; otherwise nothing is claimed", " nothing")
        assert said.otherwise in condition
        assert bool(condition) is bool(said.condition)


assert len(COUNTRIES) >= 10  # plans that are compared at least


@pytest.mark.parametrize("name", [*COUNTRIES, "starter"])
def test_the_three_say_the_same(name: str, country: Any, tmp_path: Path) -> None:
    compare(plan_of(name, country, tmp_path))


TOGETHER = {
    "mixed frameworks": ("an invariant", "pure"),
    "congenial and measured": ("congenial", "an invariant"),
    "congenial, both kinds": ("congenial", "congenial and pure", "free"),
}


@pytest.mark.parametrize("names", TOGETHER.values(), ids=TOGETHER)
def test_the_three_say_the_same_of_several_releases(names: tuple[str, ...], country: Any, tmp_path: Path) -> None:
    sources = []
    for name in names:
        plan = plan_of(name, country, tmp_path)
        sources.append(Source(plan, spine_of(plan)))
    accounted = joint_account(sources)
    accounted.sections["ledgers"] = [{"ledger": "that of one", "dataset": "d", "reason": "is closed to you"}]
    statement, described = described_as_one(sources, accounted)
    compare_statement(accounted, statement, described)
    html, text = render_privacy(statement, described), account_text(accounted.nominal, accounted.sections)
    page = Tables()
    page.feed(html)
    listed = page.tables["Each release, and whether it is accounted"][1:]
    for row, entry in zip(listed, statement["releases"], strict=True):
        assert row[2] == entry["status"]
        assert entry["budget"] in row[1]
        assert f"{row[0]}: {row[1]}; {row[2]}" in text
    for words in ("is closed to you", *([up(2.0)] if "pure" in "".join(names) else [])):
        assert words in text
        assert words in html
    assert "Several releases together, and not a release by itself." in html


@pytest.mark.slow
@pytest.mark.parametrize("name", ["demo", "pl94-2020", "pl94-2020-units-us", "dhc-2020-units-us"])
def test_the_three_say_the_same_of_large_plans(name: str, country: Any, tmp_path: Path) -> None:
    compare(plan_of(name, country, tmp_path))


def test_the_comparison_finds_a_rho_of_other_digits(country: Any, tmp_path: Path) -> None:
    plan = plan_of("a budget that is no binary fraction", country, tmp_path)
    accounted = account(plan)
    statement = statement_of(plan, accounted, facts_digest=64 * "0", charged=plan.budget, seeded=False)
    truth = said_in_json(statement)
    text = account_text(accounted.nominal, accounted.sections)
    assert said_on_terminal(text) == truth
    assert "1.920" in {said.rho for said in truth.values()}
    assert said_on_terminal(text.replace("     1.920", "    1.9200")) != truth


def test_the_comparison_finds_a_condition_that_is_left_out(country: Any, tmp_path: Path) -> None:
    """The page of a bounded plan without its conditions is found out: the test above can fail."""
    plan = plan_of("a bound", country, tmp_path)
    statement = statement_of(plan, account(plan), facts_digest=64 * "0", charged=plan.budget, seeded=False)
    truth = said_in_json(statement)
    for entry in statement["secrets"]:
        entry["condition"] = None
    found = said_on_page(render_privacy(statement, plan.to_json()), statement)
    assert found["anything within the same state"] != truth["anything within the same state"]
