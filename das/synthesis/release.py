"""One synthetic file from one file of records: read, charged, measured, fitted, written.

The charge is that of `das.storage.single_release`: the ledger knows it before any noise is drawn, and commits it when
the files are written. Everything public is checked before: config, labels, constraints, budget, size of the model.
"""

from __future__ import annotations

from dataclasses import fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from das.accounting.conversion import epsilon_upper
from das.errors import ConfigError, InputError, Problem, UsageError
from das.exact import round_up
from das.plan.settings import exact_rational
from das.records.number_columns import number_columns
from das.records.read import read_columns
from das.schema.query import Neighbours
from das.storage.new_folder import new_folder, require_new
from das.storage.single_release import Budget, SingleRelease, single_release
from das.synthesis.cost import Spent, rho_for
from das.synthesis.curator import Curator, Records
from das.synthesis.gaussian import NumericCurator, fit_gaussian
from das.synthesis.graphical.model import GraphicalModel
from das.synthesis.graphical.model_file import MODEL_FILE, model_content
from das.synthesis.methods import METHODS, OTHER_NAMES, synthesise
from das.synthesis.output import write_release
from das.synthesis.settings import INFERRED, SynthSettings, read_settings
from das.synthesis.stability import StabilityOptions
from geography.table_text import why_not_in_a_table

__all__ = ["amount_of", "encoded", "release_synthetic"]

GAUSSIAN = "gaussian"


def release_synthetic(
    method: str, config: Path, out: Path, *, testing_key: str | None = None, unprotected: bool = False
) -> dict[str, Any]:
    """Make a synthetic file and return what ``privacy.json`` says of it.

    Parameters
    ----------
    method : str
        A name in `METHODS`, or ``"gaussian"``.
    config : Path
        The config; paths in it are relative to its folder.
    out : Path
        A folder that does not exist, or is empty: ``synthetic.csv``, ``synthetic.parquet``, ``privacy.json``, and
        ``model.json`` of a graphical model.
    testing_key : str, optional
        Reproducible noise: a test, charged nothing.
    unprotected : bool
        Allow a testing key for confidential data.
    """
    method = OTHER_NAMES.get(method, method)
    if method != GAUSSIAN and method not in METHODS:
        known = ", ".join((*METHODS, *OTHER_NAMES, GAUSSIAN))
        raise UsageError(Problem(method, "is not a method", f"there are {known}"))
    settings = read_settings(config)
    require_new(out)
    framework = "zcdp" if method == GAUSSIAN else METHODS[method].framework
    try:
        options = _options(method, settings)
        _check_columns(method, settings)
        budget = Budget(framework, amount_of(settings, framework), settings.privacy.neighbours)
    except ConfigError as error:
        named = [replace(each, where=f"{config.name}: {each.where}") for each in error.problems]
        raise ConfigError(named) from None
    file = settings.input.path(config)
    charge = settings.input.charge(config, testing_key=testing_key, unprotected=unprotected)
    content = {"method": method, "config": settings.model_dump_json(), "options": repr(options)}
    note = f"synthetic records {settings.name} by {method}"
    if isinstance(options, StabilityOptions):
        note += f", delta {options.delta} beside it"  # the ledger adds epsilons; this is where the delta is on record
    private = charge.is_testing and charge.data == "confidential"
    with new_folder(out, private=private), single_release(charge, budget, content, note) as release:
        work = _numbers if method == GAUSSIAN else _labels
        table, spent, files = work(method, settings, file, options, budget, release)
        privacy = _privacy(method, settings, spent, budget, release) | {"rows": table.num_rows}
        write_release(out, table, privacy, private=private, more=files)
    return privacy


def _labels(
    method: str, settings: SynthSettings, file: Path, options: Any, budget: Budget, release: SingleRelease
) -> tuple[pa.Table, Spent, dict[str, dict[str, Any]]]:
    labels, codes = encoded(settings, file)
    domain, constraints = settings.domain(labels), settings.constraints(labels)
    constraints.check(domain, settings.privacy.records)
    records = Records(domain, codes)
    records.check(constraints)
    _check_number(settings, len(records))
    if settings.invariant and settings.output.rows not in (None, len(records)):
        raise ConfigError(Problem("output.rows", "the published marginals have another total", "leave it out"))
    curator = Curator(
        records,
        release.streams,
        framework=budget.framework,
        budget=budget.amount,
        neighbours=budget.neighbours,
        before=release.reserve,
    )
    found = synthesise(method, curator, constraints, total=settings.privacy.records, options=options)
    total = constraints.invariants[0].counts.sum() if constraints.invariants else round(found.model.total)
    n = settings.output.rows or max(1, int(total))
    rows = found.model.rows(n, np.random.default_rng(release.seed("rows")))
    columns = {
        name: pa.array(np.array(labels[name], dtype=object)[rows[:, axis]], pa.string())
        for axis, name in enumerate(domain.names)
    }
    files = {MODEL_FILE: model_content(found.model, labels)} if isinstance(found.model, GraphicalModel) else {}
    return pa.table(columns), found.spent, files


def _numbers(
    method: str, settings: SynthSettings, file: Path, options: Any, budget: Budget, release: SingleRelease
) -> tuple[pa.Table, Spent, dict[str, dict[str, Any]]]:
    if settings.numbers is None:
        raise ConfigError(Problem(method, "needs [numbers] centre and radius"))
    names = list(settings.numbers.centre)
    values = number_columns(file, names)
    _check_number(settings, len(values))
    curator = NumericCurator(
        names,
        values,
        release.streams,
        centre=list(settings.numbers.centre.values()),
        radius=settings.numbers.radius,
        budget=budget.amount,
        neighbours=budget.neighbours,
        before=release.reserve,
    )
    model = fit_gaussian(curator, settings.privacy.records, options)
    n = settings.output.rows or max(1, round(model.total))
    rows = model.rows(n, np.random.default_rng(release.seed("rows")))
    return pa.table({name: rows[:, k] for k, name in enumerate(names)}), curator.spent, {}


def encoded(settings: SynthSettings, file: Path) -> tuple[dict[str, list[str]], NDArray[np.int64]]:
    """Read the records as label positions; labels are declared, or for `stability` taken from the file."""
    names = list(settings.columns)
    batches = [batch.table for batch in read_columns(file, names)]
    table = pa.concat_tables(batches) if batches else None
    if table is None or not table.num_rows:
        raise InputError(Problem(file.name, "holds no records"))
    labels: dict[str, list[str]] = {}
    codes, problems = [], []
    for name, given in settings.columns.items():
        column = pc.cast(table[name], pa.string())
        if isinstance(given, str):
            labels[name] = sorted(each for each in pc.unique(column).to_pylist() if each is not None)
            if any(map(why_not_in_a_table, labels[name])):
                reason = f"some values of {name!r} are formulas to a spreadsheet, or hold control characters"
                problems.append(Problem(file.name, reason, "list the labels of the column in the config"))
        else:
            labels[name] = list(given)
        code = pc.fill_null(pc.index_in(column, pa.array(labels[name], pa.string())), -1).to_numpy(zero_copy_only=False)
        if (code < 0).any():
            problems.append(Problem(file.name, f"some values of {name!r} are no labels of it", "complete its labels"))
        codes.append(np.asarray(code, dtype=np.int64))
    if problems:
        raise InputError(problems)
    return labels, np.stack(codes, axis=1)


def _check_columns(method: str, settings: SynthSettings) -> None:
    """Refuse columns that do not go with the method, before the ledger is asked or a record is read."""
    if method == GAUSSIAN:
        if settings.numbers is None or settings.columns:
            raise ConfigError(Problem(method, "needs [numbers] centre and radius, and no [columns]"))
        return
    if settings.numbers is not None:
        raise ConfigError(Problem("numbers", f"mean nothing to `{method}`", "use `gaussian`, or list bins as labels"))
    if not settings.columns:
        raise ConfigError(Problem("columns", "are missing", 'list the labels of each: [columns] sex = ["f", "m"]'))
    twice = [name for name, given in settings.columns.items() if given != INFERRED and len(set(given)) < len(given)]
    if twice:
        raise ConfigError([Problem(f"columns.{name}", "has a label twice", "list each label once") for name in twice])
    inferred = [name for name, given in settings.columns.items() if given == INFERRED]
    if inferred and method != "stability":
        reason, remedy = "taking labels from the records would reveal them", "list them, or use `stability`"
        raise ConfigError([Problem(f"columns.{name}", reason, remedy) for name in inferred])


def _check_number(settings: SynthSettings, found: int) -> None:
    if settings.privacy.records is not None and settings.privacy.records != found:
        raise InputError(Problem("privacy.records", "is not the number of records in the file", "correct it"))


def amount_of(settings: SynthSettings, framework: str) -> Fraction:
    """Return rho for zCDP, from rho or from epsilon and delta; epsilon for pure."""
    privacy = settings.privacy
    if framework == "zcdp":
        if privacy.rho is not None and privacy.epsilon is None:
            return privacy.rho
        if privacy.rho is None and privacy.epsilon is not None and privacy.delta is not None:
            return rho_for(privacy.epsilon, privacy.delta)
        raise ConfigError(Problem("privacy", "this method spends rho", "give rho, or epsilon and delta"))
    if privacy.epsilon is None or privacy.rho is not None:
        raise ConfigError(Problem("privacy", "this method spends epsilon", "give epsilon and no rho"))
    return privacy.epsilon


def _options(method: str, settings: SynthSettings) -> Any:
    """Return the options of a method with what the config changes; fractions are written as strings."""
    from das.synthesis.gaussian import GaussianOptions

    kind = GaussianOptions if method == GAUSSIAN else METHODS[method].options
    options = kind()
    known = {field.name: getattr(options, field.name) for field in fields(kind) if field.name != "fitting"}
    problems, given = [], {}
    for key, value in settings.options.items():
        if key not in known:
            there = f"there are {', '.join(known)}" if known else "it has none: leave it out"
            problems.append(Problem(f"options.{key}", f"is no option of {method}", there))
        elif isinstance(known[key], Fraction):
            try:
                given[key] = exact_rational(value)
            except ValueError as error:
                problems.append(Problem(f"options.{key}", str(error)))
        elif type(value) is not type(known[key]):
            remedy = f"write for example {known[key]!r}"
            problems.append(Problem(f"options.{key}", f"is not {type(known[key]).__name__}", remedy))
        else:
            given[key] = value
    if problems:
        raise ConfigError(problems)
    made = replace(options, **given)
    if isinstance(made, StabilityOptions) and settings.privacy.delta is not None:
        made = replace(made, delta=settings.privacy.delta)
    return made if given or isinstance(made, StabilityOptions) else None


def _privacy(
    method: str, settings: SynthSettings, spent: Spent, budget: Budget, release: SingleRelease
) -> dict[str, Any]:
    """State the promise: what was charged, what of it was spent on what, and about whom it is."""
    stated: dict[str, Any] = {
        "name": settings.name,
        "method": method,
        "neighbours": str(budget.neighbours),
        "number_of_records": "public" if _is_public(settings) else "measured",
        "charged": str(budget.amount),
        "spent": spent.to_json(),
        "status": "proved",
    }
    if budget.framework == "zcdp":
        delta = settings.privacy.delta or Fraction(1, 10**10)
        stated |= {"epsilon_upper": float(round_up(epsilon_upper(budget.amount, delta), 4)), "delta": str(delta)}
    elif spent.delta:
        stated["delta"] = str(spent.delta)
    public = ["the published marginals"] if settings.invariant else []
    if settings.privacy.records is not None and budget.neighbours is Neighbours.ADD_REMOVE:
        public.append("the number of records")
    if public:
        stated["condition"] = f"given {' and '.join(public)}, which hold exactly and are not protected"
    if settings.invariant:  # group privacy: the noise does not depend on what is public
        stated["several_records"] = "where the published marginals let k records change only together: k^2 rho"
    if release.charge.is_testing:
        stated["status"] = "a test: the noise can be removed by whoever guesses the testing key"
    return stated | {"dataset": settings.input.dataset, "run_id": release.run_id}


def _is_public(settings: SynthSettings) -> bool:
    return settings.privacy.records is not None or settings.privacy.neighbours is Neighbours.REPLACE
