"""The audit of whole plans: what ships is accepted, and each planted fault is found at 99.9 % confidence."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from das.accounting.hierarchy import HierarchicalPlan
from das.cli import main
from das.demo.starter import write_starter
from das.errors import BudgetError, InfeasibleError, Problem, UsageError
from das.evaluation.privacy_audit import Audit, audit_mechanism, audit_plan, audit_text, mechanism_runs, render_audit
from das.evaluation.privacy_audit import claims as claims_module
from das.evaluation.privacy_audit.claims import claims_of
from das.evaluation.privacy_audit.small_world import small_world
from das.evaluation.privacy_audit.text import shown_lower, shown_upper
from das.noise import DiscreteGaussian, DiscreteLaplace
from das.noise.measure import noisy_answers
from das.noise.stream import Bundle, Streams
from das.noise.two_sided import TwoSidedNoise
from das.plan.load import load
from das.plan.plan import Plan
from das.promise.account import account
from geography import Spine

if TYPE_CHECKING:
    from conftest import Country

PURE = {"privacy": {"framework": "pure", "epsilon": "2"}}
FIXED = {"invariant": [{"query": "total", "level": "county", "reason": "seats"}]}
PRESENT = {"privacy": {"framework": "zcdp", "rho": "1/2", "neighbours": "add-remove"}}
CONGENIAL = {
    "strategy": {
        "geolevels": {"state": "1/6", "county": "1/3", "block": "1/2"},
        "queries": {"all": {"detailed": "1"}},
    },
    "estimate": {"method": "congenial"},
}


def quick(plan: Plan, runs: int = 120, **about: Any) -> Audit:
    return audit_plan(plan, runs=runs, with_whole_run=False, **{"sweep": 12, **about})


def verdicts(found: Audit) -> dict[str, str]:
    """Verdict of each policy and of each check, by the first words of its name."""
    checks = {" ".join(check.name.split()[:2]): check.verdict for check in found.checks}
    return {each.claim.policy: each.verdict for each in found.policies} | checks


def failed(found: Audit) -> set[str]:
    return {name for name, verdict in verdicts(found).items() if verdict == "VIOLATED"}


@pytest.mark.parametrize("sections", [{}, FIXED, PURE | FIXED, PRESENT], ids=lambda each: "+".join(each) or "plain")
def test_what_ships_is_accepted(country: Country, sections: dict[str, Any]) -> None:
    found = quick(country.plan(**sections))
    assert set(verdicts(found).values()) == {"consistent"}
    assert found.verdict == "consistent"
    for each in found.policies:
        # The exact loss of the pair that the search found comes within a hair of the claim: the search is no straw man.
        assert each.claim.epsilon is not None
        assert each.exact is not None
        assert each.claim.epsilon * 0.985 < each.exact <= each.claim.epsilon
        assert each.plan_epsilon == pytest.approx(each.claim.epsilon)
        assert each.empirical is not None
        assert each.empirical.epsilon <= each.exact


def narrow(noise: TwoSidedNoise, factor: Fraction) -> TwoSidedNoise:
    """The same noise to all appearances, drawn with a smaller scale."""
    kind = type(noise)
    power = 2 if isinstance(noise, DiscreteGaussian) else 1

    class Narrow(kind):  # type: ignore[misc, valid-type]
        def draw(self, bundle: Bundle, n: int) -> Any:
            drawn: TwoSidedNoise = kind(self.parameter * factor**power)
            return drawn.draw(bundle, n)

    made: TwoSidedNoise = Narrow(noise.parameter)
    return made


def with_narrow_noise(plan: Plan, factor: Fraction) -> Plan:
    kinds = {m.mechanism: narrow(m.mechanism, factor) for m in plan.measurements}
    return replace(plan, measurements=tuple(replace(m, mechanism=kinds[m.mechanism]) for m in plan.measurements))


@pytest.mark.parametrize("sections", [{}, PURE], ids=["gaussian", "laplace"])
def test_noise_five_percent_too_small_is_found(country: Country, sections: dict[str, Any]) -> None:
    plan = country.plan(**sections)
    assert failed(quick(with_narrow_noise(plan, Fraction(95, 100)), policies=["semi"])) == {"The noise"}
    assert not failed(quick(with_narrow_noise(plan, Fraction(1)), policies=["semi"]))


@pytest.mark.parametrize("noise", [DiscreteGaussian(4), DiscreteLaplace(2)], ids=["gaussian", "laplace"])
def test_a_mechanism_five_percent_too_narrow_is_found(noise: TwoSidedNoise) -> None:
    assert failed(audit_mechanism(narrow(noise, Fraction(95, 100)), runs=10_000)) == {"The noise"}
    assert not failed(audit_mechanism(noise, runs=10_000))


def test_a_mechanism_far_too_narrow_is_found_by_its_epsilon() -> None:
    found = audit_mechanism(narrow(DiscreteLaplace(2), Fraction(1, 2)), runs=20_000)
    assert {"add-remove", "replace", "The noise"} == failed(found)


def test_a_forgotten_query_is_found(country: Country, monkeypatch: pytest.MonkeyPatch) -> None:
    describe = claims_module.hierarchical_plan

    def forgetful(plan: Plan, spine: Spine | None = None, **about: Any) -> HierarchicalPlan:
        whole = describe(plan, spine, **about)
        return replace(whole, events=tuple(e for e in whole.events if (e.level, e.query) != ("county", "total")))

    monkeypatch.setattr(claims_module, "hierarchical_plan", forgetful)
    found = quick(country.plan())
    assert failed(found) == {"semi", "irreducible", "nearest", "unconstrained", "Everything that"}
    assert "measured but not accounted: county/total" in audit_text(found)


def test_a_reused_stream_is_found(country: Country, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = Streams.bundle

    def without_query(self: Streams, names: Iterable[tuple[str, str, str, str]]) -> Bundle:
        return bundle(self, [(level, geocode, "", "") for level, geocode, _, _ in names])

    monkeypatch.setattr(Streams, "bundle", without_query)
    found = quick(country.plan(), runs=60, policies=["semi"])
    assert "No two" in failed(found)
    assert "have the same sign in" in audit_text(found)


def test_a_reused_key_is_found(country: Country, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = mechanism_runs.RunKey.for_testing
    monkeypatch.setattr(
        mechanism_runs.RunKey, "for_testing", lambda text: keys(text.replace("run 17", "run 16")), raising=True
    )
    assert "No two" in failed(quick(country.plan(), runs=40, policies=["semi"]))


def test_a_refusal_that_depends_on_one_record_is_found(country: Country, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(measured: Sequence[Any], geocodes: Any, truth: Any, streams: Streams) -> Any:
        if "01002" in geocodes and np.any((truth.unit == 1) & (truth.cell == 4)):
            raise InfeasibleError(Problem("sampler", "cannot draw this"))
        return noisy_answers(measured, geocodes, truth, streams)

    monkeypatch.setattr(mechanism_runs, "noisy_answers", refusing)
    found = quick(country.plan(), runs=20, sweep=40, policies=["semi"])
    assert "Whether anything" in failed(found)
    assert "01002: m, 18-64" in next(check.detail for check in found.checks if check.name.startswith("Whether"))


def test_a_violation_is_exit_code_five(
    country: Country, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mechanism_runs, "noisy_answers", lambda *given: noisy_answers(*given) // 2)
    monkeypatch.setattr("das.evaluation.privacy_audit.plan_audit.check_whole_run", lambda *_: ())
    path, page = country.write(country.config()), tmp_path / "audit.html"
    with pytest.raises(SystemExit) as ended:
        main(["audit", str(path), "--runs", "100", "--policy", "semi", "--json", "--html", str(page)])
    assert ended.value.code == BudgetError.exit_code == 5
    out, err = capsys.readouterr()
    content = json.loads(out)
    assert content["verdict"] == "VIOLATED"
    assert [each["policy"] for each in content["policies"]] == ["semi"]
    assert "do not publish" in err
    text = page.read_text()
    assert "THE PROMISE IS NOT KEPT" in text
    assert "<script" not in text
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")


def test_a_mechanism_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "audit.html"
    main_arguments = ["audit", "discrete-laplace", "--scale", "2", "--runs", "2000", "--html", str(page)]
    das_ended = _exit_code(main_arguments)
    assert das_ended == 0
    assert "The promise is not refuted" in capsys.readouterr().out
    assert "discrete-laplace(scale=2)" in page.read_text()
    for wrong in (["discrete-laplace"], ["discrete-gaussian", "--scale", "2"], ["discrete-gaussian", "--sigma2", "0"]):
        assert _exit_code(["audit", *wrong]) == 2
    assert _exit_code(["audit", "discrete-gaussian", "--sigma2", "1", "--delta", "2"]) == 2


def _exit_code(arguments: list[str]) -> int:
    try:
        main(arguments)
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def test_bad_questions_are_refused(country: Country) -> None:
    with pytest.raises(UsageError, match="not one that is accounted here"):
        quick(country.plan(), policies=["anybody"])
    with pytest.raises(UsageError, match="at least 4 runs"):
        quick(country.plan(), runs=1)
    with pytest.raises(UsageError, match="cannot be audited"):
        audit_mechanism(DiscreteLaplace(2), policies=["semi"])


def test_the_same_seed_gives_the_same_audit(country: Country) -> None:
    plan = country.plan()
    first, again, other = (quick(plan, runs=12, seed=seed, policies=["semi"]).to_json() for seed in "aab")
    assert first == again != other


def test_no_record_is_read(country: Country) -> None:
    """The input does not exist; the audit never opens it."""
    assert not (country.folder / "people.csv").exists()
    assert quick(country.plan(), runs=8, policies=["semi"]).verdict == "consistent"


@pytest.mark.parametrize("sections", [FIXED, CONGENIAL], ids=["zcdp", "congenial"])
def test_claims_are_those_of_the_statement(country: Country, sections: dict[str, Any]) -> None:
    plan, spine = country.plan(**sections), country.spine(**sections)
    quoted = {row["policy"]: row for row in account(plan, spine).sections["effective"]}
    for name, claim in claims_of(plan, spine).items():
        if name in quoted:
            assert claim.quoted == quoted[name]["epsilon"]
            numbers = [quoted[name]["epsilon"], quoted[name]["tight_epsilon"]]
            assert claim.epsilon == min(each for each in numbers if isinstance(each, float))


def test_the_page_says_what_the_text_says(country: Country) -> None:
    found = quick(country.plan(), runs=16)
    page, text = render_audit(found), audit_text(found)
    for each in found.policies:
        assert each.claim.policy in page
        assert shown_upper(each.claim.epsilon) in page
        assert shown_upper(each.claim.epsilon) in text
        assert f">{shown_lower(each.exact)}<" in page
    assert all(check.name in page and check.name in text for check in found.checks)


def test_a_plan_too_large_is_audited_in_a_smaller_world(tmp_path: Path) -> None:
    plan = load(write_starter(tmp_path / "country"))
    world = small_world(plan)
    assert not world.is_whole
    assert world.columns == 16
    found = quick(plan, runs=40)
    assert found.verdict == "consistent"
    for each in found.policies:
        assert each.exact == pytest.approx(each.plan_epsilon, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("budget", [{"framework": "zcdp", "rho": "1/2"}, {"framework": "pure", "epsilon": "2"}])
def test_congenial_draws_are_accepted_and_a_narrow_scale_is_found(
    country: Country, budget: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seats = [{"query": "total", "level": "state", "reason": "seats"}]
    plan = country.plan(**CONGENIAL, invariant=seats, privacy=budget)
    found = audit_plan(plan, runs=60, policies=["nearest"], sweep=4)
    assert found.verdict == "consistent"
    assert {"A whole", "The conforming"} <= set(verdicts(found))
    tree_of = mechanism_runs.tree_of
    more = Fraction(20, 19) ** (2 if plan.framework == "zcdp" else 1)  # of the budget: noise of 95 % of the scale
    monkeypatch.setattr(mechanism_runs, "tree_of", lambda asked: tree_of(asked.with_budget(asked.budget * more)))
    assert "The conforming" in failed(quick(plan, runs=500, policies=["nearest"], sweep=2))


@pytest.mark.slow
@pytest.mark.parametrize("sections", [FIXED, PURE], ids=["zcdp", "pure"])
def test_a_whole_run_is_what_is_repeated(
    country: Country, sections: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = audit_plan(country.plan(**sections), runs=20, sweep=2, policies=["semi"])
    assert {check.verdict for check in found.checks} == {"consistent"}
    monkeypatch.setattr(mechanism_runs, "noisy_answers", lambda *given: noisy_answers(*given) + 1)
    found = audit_plan(country.plan(**sections), runs=20, sweep=2, policies=["semi"])
    assert "A whole" in failed(found)
