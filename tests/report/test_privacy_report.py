"""The privacy report: what it says, what it leaves out, and that nothing in it can act or load."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from importlib.resources import files
from itertools import pairwise
from typing import Any

import pytest

from das.errors import UsageError
from das.report.privacy import render_privacy

VOID = {"meta"}
INLINE = {"strong", "sup", "code"}
HOSTILE = """</style></title><script src="https://evil.example/x.js">alert('1')</script> & <img onerror="x">{{ 7*7 }}"""


class Page(HTMLParser):
    """The elements of a page in order, its text, and whether every tag is closed."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)
        if tag not in INLINE:
            self.text += " "

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag
        if tag not in INLINE:
            self.text += " "

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] != "style":
            self.text += data

    def all(self, *tags: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.elements if tag in tags]

    @property
    def words(self) -> str:
        return " ".join(self.text.split())


def words(*arguments: Any, **named: Any) -> str:
    return Page(render_privacy(*arguments, **named)).words


def test_the_promise_honours_the_public_facts(accounted: dict[str, Any], plan: dict[str, Any]) -> None:
    semi = next(entry for entry in accounted["effective"] if entry["policy"] == "semi")
    said = words(accounted | {"effective": [semi | {"a": 2, "epsilon": 39.7842}]}, plan)
    assert "This release limits what anyone can learn about any one person." in said
    assert "up to 2 records in all" in said
    assert "at most e39.785 times (190 quadrillion times) as probable" in said
    assert "under the one as under the other, plus at most 1 in 10 billion." in said
    assert "39.785 effective epsilon" in said
    assert "17.144 nominal epsilon" in said
    assert "even all other records" not in said  # who knows all others can solve the exact totals for the last one


def test_without_effective_numbers_the_nominal_one_says_what_it_does_not_cover(
    bare: dict[str, Any], plan: dict[str, Any]
) -> None:
    said = words(bare, plan)
    assert "two values that this person’s record could have" in said
    assert "at most e17.144 times (28 million times) as probable" in said
    assert "is not covered by this number" in said
    assert "This statement does not give effective numbers." in said
    free = words(bare | {"invariants": [], "bounds": []}, plan)
    assert "is not covered by this number" not in free


def test_one_record_needs_no_stand_in(accounted: dict[str, Any], plan: dict[str, Any]) -> None:
    semi = {"policy": "semi", "a": 1, "rho": 1.0, "epsilon": 10.04, "status": "proved"}
    said = words(accounted | {"effective": [semi]}, plan)
    assert "if other records must change" not in said
    assert "One record changes, and all public facts stay true." in said


def test_presence_is_the_secret_when_records_are_added_or_removed(bare: dict[str, Any], plan: dict[str, Any]) -> None:
    said = words(bare | {"relation": {"unit": "household", "kind": "add-remove"}}, plan)
    assert "compare the data with this household’s record and without it" in said
    assert "any one household" in said


def test_pure_privacy_has_no_remainder_and_no_curve(pure: tuple[dict[str, Any], dict[str, Any]]) -> None:
    statement, plan = pure
    said = words(statement, plan)
    assert "at most e2.000 times (7.4 times) as probable under the one as under the other. This holds" in said
    assert "plus at most" not in said
    assert "Epsilon for every delta" not in said
    assert "rho" not in said


def test_pure_privacy_quotes_the_epsilon_that_needs_no_delta(pure: tuple[dict[str, Any], dict[str, Any]]) -> None:
    statement, plan = pure
    semi = {"policy": "semi", "a": 2, "rho": 1.5, "epsilon": 3.1, "pure_epsilon": 4.0, "status": "proved"}
    said = words(statement | {"effective": [semi]}, plan)
    assert "at most e4.000 times" in said
    assert "3.100" not in said


def test_every_epsilon_is_rounded_up(full: dict[str, Any], plan: dict[str, Any]) -> None:
    for entry in (full["nominal"], full["tight"], *full["effective"], *full["secrets"], *full["attributes"]):
        entry["epsilon"] = 21.4560001
    html = render_privacy(full, plan)
    assert html.count("21.457") >= 10
    assert "21.456" not in html


@pytest.mark.parametrize(
    ("change", "title"),
    [
        ({"seeded": True}, "Test run: the noise key is known. This is not a release."),
        ({"ledger_agrees": False}, "The ledger and the plan disagree. This is not a release."),
        ({"vacuous": True}, "Vacuous: the public facts determine the data."),
        ({"nominal": {"epsilon": None, "rho": "not supported"}}, "The privacy cost is not known."),
        ({"nominal": {"epsilon": "infinite", "rho": "infinite"}}, "The privacy cost has no bound."),
    ],
)
def test_what_must_not_be_signed_says_so_first_and_last(
    bare: dict[str, Any], plan: dict[str, Any], change: dict[str, Any], title: str
) -> None:
    good, bad = Page(render_privacy(bare, plan)), Page(render_privacy(bare | change, plan))
    assert {"class": "stop", "role": "alert"} in bad.all("div")
    assert {"class": "stop", "role": "alert"} not in good.all("div")
    assert title not in good.words
    assert bad.words.index(title) < bad.words.index("would promise" if "would promise" in bad.words else "promise")
    assert bad.words.endswith(f"Not to be signed {title}")
    assert good.words.endswith("Name Office Place and date Signature")
    assert "This release limits" in good.words
    assert "This release limits" not in bad.words


@pytest.mark.parametrize("change", [{"vacuous": True}, {"nominal": {"epsilon": "infinite", "rho": "infinite"}}])
def test_where_there_is_no_promise_no_number_stands_in_its_place(
    bare: dict[str, Any], plan: dict[str, Any], change: dict[str, Any]
) -> None:
    said = words(bare | change, plan)
    assert "There is no promise to state for this run." in said
    assert "as probable" not in said
    assert "delta, added to every probability" not in said


def test_a_vacuous_policy_is_never_called_zero(bare: dict[str, Any], plan: dict[str, Any]) -> None:
    status = "VACUOUS - data determined by invariants"
    semi = {"policy": "semi", "a": 1, "rho": 0.0, "epsilon": None, "status": status}
    html = render_privacy(bare | {"effective": [semi], "vacuous": True}, plan)
    assert "Effective, Semi-DP: vacuous" in html
    assert status in html
    assert html.count("<path") == 1  # the nominal curve alone


def test_a_policy_the_accountant_does_not_know_leaves_the_nominal_promise(
    bare: dict[str, Any], plan: dict[str, Any]
) -> None:
    semi = {"policy": "semi", "a": None, "rho": "not supported", "epsilon": None, "status": "not supported"}
    said = words(bare | {"effective": [semi]}, plan)
    assert "at most e17.144 times" in said
    assert "not supported not supported – not supported" in said  # rho, epsilon, tight and status of the one row


SECTIONS = [
    ("effective", "What is compared, and what stands behind the number"),
    ("secrets", "Any change of one record"),
    ("attributes", "One attribute, all else being known"),
    ("geography", "One place, all else being known"),
    ("families", "Epsilon of a shared secret, by the size of the family"),
    ("tight", "Nominal, tight"),
    ("determined_queries", "Determined by the above"),
    ("pinned_cells", "Counts that the public facts pin down"),
    ("unprotected_secrets", "the state of the only resident of area 07"),
]


@pytest.mark.parametrize(("key", "marker"), SECTIONS)
def test_a_section_is_there_exactly_when_its_key_is(
    full: dict[str, Any], plan: dict[str, Any], key: str, marker: str
) -> None:
    assert marker in words(full, plan)
    del full[key]
    assert marker not in words(full, plan)


@pytest.mark.parametrize(("pinned", "said"), [(0, "pin down None."), (1234, "pin down 1,234."), ([], "pin down None.")])
def test_pinned_cells_may_be_a_number_or_a_list(
    full: dict[str, Any], plan: dict[str, Any], pinned: object, said: str
) -> None:
    assert said in words(full | {"pinned_cells": pinned}, plan)


def test_everything_public_is_listed_with_its_reason(accounted: dict[str, Any], plan: dict[str, Any]) -> None:
    said = words(accounted, plan)
    assert "total of each state. Apportionment: state populations are published exactly." in said
    assert "hhgq of each block: at least the number in facilities.csv. At least one person lives in" in said
    assert "hhgq of each block: at most 99,999 times the number in facilities.csv. Nobody lives in" in said
    assert "nurse_nva_0" in said
    assert "state › county › tract › block group › block" in said
    assert "Exactly this is public: state total, bounds on block hhgq." in said


def test_provenance_comes_from_the_manifest(
    bare: dict[str, Any], plan: dict[str, Any], manifest: dict[str, Any]
) -> None:
    without, said = words(bare, plan), words(bare, plan, manifest=manifest)
    assert bare["plan_digest"] in without
    assert bare["facts_digest"] in without
    for text in ("das 0.1.0, numpy 2.1.0", 64 * "a", 64 * "b", 64 * "c", manifest["product"], manifest["finished"]):
        assert text in said
        assert text not in without
    assert "Finished" not in words(bare, plan, manifest=manifest | {"finished": None})


def test_the_same_arguments_give_the_same_bytes(
    full: dict[str, Any], plan: dict[str, Any], manifest: dict[str, Any]
) -> None:
    first = render_privacy(full, plan, manifest=manifest)
    assert first == render_privacy(full, plan, manifest=manifest)
    assert len(first.encode()) < 90_000
    assert not re.search(r"/work|/tmp|/home", first)


def test_a_statement_of_another_plan_is_refused(bare: dict[str, Any], plan: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="was made from plan"):
        render_privacy(bare | {"plan_digest": 64 * "0"}, plan)


def poisoned(value: Any, safe: frozenset[str]) -> Any:
    """Append a hostile text to every free text of nested data."""
    match value:
        case dict():
            return {key: v if key in safe else poisoned(v, safe) for key, v in value.items()}
        case list():
            return [poisoned(v, safe) for v in value]
        case str():
            return value + HOSTILE
        case _:
            return value


def test_no_text_can_become_markup(full: dict[str, Any], plan: dict[str, Any], manifest: dict[str, Any]) -> None:
    # what is parsed or decides the form of the page; everything else may hold anything
    safe = frozenset(
        {"rho", "framework", "kind", "policy", "share", "cost", "budget", "delta", "sense", "plan_digest", "status"}
    )
    clean = Page(render_privacy(full, plan, manifest=manifest))
    hostile = render_privacy(poisoned(full, safe), poisoned(plan, safe), manifest=poisoned(manifest, safe))
    assert [tag for tag, _ in Page(hostile).elements] == [tag for tag, _ in clean.elements]
    assert hostile.count("evil.example") >= 60
    digest = poisoned({"plan_digest": full["plan_digest"]}, frozenset())
    styled = render_privacy(full | digest, plan | digest)
    assert [tag for tag, _ in Page(styled).elements].count("script") == 0


def test_nothing_in_the_page_can_act_or_load(
    full: dict[str, Any], plan: dict[str, Any], manifest: dict[str, Any]
) -> None:
    html = render_privacy(full, plan, manifest=manifest)
    page = Page(html)
    active = {
        "script",
        "link",
        "img",
        "image",
        "iframe",
        "object",
        "embed",
        "form",
        "audio",
        "video",
        "base",
        "use",
        "a",
    }
    assert not active & {tag for tag, _ in page.elements}
    for _, attributes in page.elements:
        assert not {"src", "href", "xlink:href", "action", "style", "srcset"} & attributes.keys()
        assert not [name for name in attributes if name.startswith("on")]
    assert not re.search(r"https?:|//|url\(|@import|@font-face", html)
    assert page.all("meta")[1]["content"] == "default-src 'none'; style-src 'unsafe-inline'"


def test_the_page_can_be_read_with_a_screen_reader(full: dict[str, Any], plan: dict[str, Any]) -> None:
    html = render_privacy(full, plan)
    page = Page(html)
    assert page.all("html") == [{"lang": "en"}]
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in page.elements:
        assert set((attributes.get("aria-labelledby") or "").split()) <= set(ids)
    assert len(page.all("table")) == len(page.all("caption")) == 7
    assert all(attributes.get("scope") for attributes in page.all("th"))
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    pictures = page.all("svg")
    charts = [svg for svg in pictures if svg.get("role") == "img"]
    assert len(charts) == len(page.all("desc")) == 3
    assert len(page.all("title")) == 4  # the page's own, and one for each chart
    nested = [svg for svg in pictures if "viewbox" in svg]
    assert all("aria-hidden" in svg for svg in pictures if svg not in charts and svg not in nested)


def luminance(colour: str) -> float:
    """Relative luminance of WCAG 2.2."""
    channels = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_contrast_is_enough_everywhere(bare: dict[str, Any], plan: dict[str, Any]) -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") < 4.5  # the test can fail
    html = render_privacy(bare, plan)
    for name in ("ink", "quiet", "accent", "stop"):
        colour = re.search(rf"--{name}: (#[0-9a-f]{{6}})", html)
        assert colour is not None
        assert contrast(colour[1], "#ffffff") >= 4.5
    shades = re.findall(r"\.shade-\d \{ background: (#[0-9a-f]{6}); color: (#[0-9a-f]{6});", html)
    assert len(shades) == 6
    assert all(contrast(background, text) >= 4.5 for background, text in shades)
    # darker means more, also in black and white
    lightness = [luminance(background) for background, _ in shades]
    assert all(a > 1.15 * b for a, b in pairwise(lightness))


def test_the_template_is_part_of_the_package() -> None:
    assert (files("das.report") / "privacy.html.j2").is_file()


def test_decisions_about_the_ledger_are_sentences(plan, accounted, manifest) -> None:
    decided = [
        {"kind": "lost", "day": "2030-01-02", "reason": "the disk burnt."},
        {"kind": "distinct", "day": "2030-02-03", "reason": "another census"},
    ]
    manifest["ledger_entry"]["decisions"] = decided
    page = render_privacy(accounted, plan, manifest=manifest)
    assert "On 2030-01-02 somebody accepted that entries of the ledger are lost" in page
    assert "Reason given: the disk burnt.<" in page
    assert "On 2030-02-03 somebody declared that these are other people" in page
    assert "decisions" not in page
    assert "&#39;kind&#39;" not in page
