"use strict";
// What `das plan` states, for budgets and shares that are moved here. Shares are whole ten-thousandths once they are
// moved, so that what is exported are exact fractions.
const data = JSON.parse(document.getElementById("data").textContent);
const WHOLE = 10000, HALF_NORMAL = Math.sqrt(2 / Math.PI), ROUNDING = 2 ** -44;
const pure = data.framework === "pure", currency = pure ? "epsilon" : "rho";
const byId = (id) => document.getElementById(id);

const number = (text) => { const [up, down] = String(text).split("/"); return Number(up) / Number(down || 1); };
const exact = (parts) => parts.map((part) => `${part}/${WHOLE}`);

// ---- state ----
const own = () => ({
  budget: data.budget,
  levels: data.levels.map((level) => level.share),
  queries: data.measurements.map((m) => m.share),
});
let state = own();
const of_level = (name) => data.measurements.map((m, i) => i).filter((i) => data.measurements[i].level === name);
const level_of = data.measurements.map((m) => data.levels.findIndex((level) => level.name === m.level));

// ---- what das plan computes ----
function epsilon_upper(rho) {
  // Canonne, Kamath and Steinke 2020, Proposition 12; the order is found by bisection and rounding is added.
  if (!(rho > 0)) return 0;
  const log = -Math.log(data.delta);
  let left = Math.log(Math.min(Math.sqrt(log / (2 * rho)), Math.expm1(log / 2)));
  let right = Math.log(Math.min(Math.sqrt(log / rho), Math.expm1(log)));
  right = Math.max(left, right);
  for (let step = 0; step < 90; step++) {
    const middle = (left + right) / 2, t = Math.exp(middle);
    if (rho * t * t + Math.log1p(t) - log > 0) right = middle; else left = middle;
  }
  const t = Math.exp(left);
  const terms = [(1 + t) * rho, -Math.log1p(1 / t), log / t, -Math.log1p(t) / t];
  const sum = terms.reduce((a, b) => a + b), size = terms.reduce((a, b) => a + Math.abs(b), 0);
  return Math.max(0, sum + ROUNDING * size);
}
// as das.exact.quoted: three digits, three that count below 0.1, rounded up; the last digits of a double do not count
const quoted = (x) => {
  let digits = 3;
  while (x > 0 && x < 100 / 10 ** digits) digits += 1;
  return (Math.ceil(Number((x * 10 ** digits).toPrecision(14))) / 10 ** digits).toFixed(digits);
};

function noise(cost, m) {
  // Exact moments of the integer noise: discrete Gaussian with sigma2 = l2 / (2 rho), discrete Laplace with scale l1 / epsilon.
  if (pure) {
    const p = Math.exp(-cost / m.l1);
    return { variance: 2 * p / (1 - p) ** 2, mean: 2 * p / (1 - p * p) };
  }
  const sigma2 = m.l2 / (2 * cost), sigma = Math.sqrt(sigma2);
  if (sigma > 3000) return { variance: sigma2, mean: HALF_NORMAL * sigma };
  let mass = 1, first = 0, second = 0;
  for (let k = 1; k <= 12 * sigma + 12; k++) {
    const p = 2 * Math.exp(-k * k / (2 * sigma2));
    mass += p; first += p * k; second += p * k * k;
  }
  return { variance: second / mass, mean: first / mass };
}

function inverse(matrix) {
  // Gauss-Jordan with pivots on the diagonal: information matrices are positive definite. Null if one is not.
  const n = matrix.length, a = matrix.map((row, i) => [...row, ...row.map((_, j) => (i === j ? 1 : 0))]);
  for (let i = 0; i < n; i++) {
    if (!(a[i][i] > 1e-300)) return null;
    const pivot = a[i][i];
    for (let j = 0; j < 2 * n; j++) a[i][j] /= pivot;
    for (let r = 0; r < n; r++) {
      const times = r === i ? 0 : a[r][i];
      if (times) for (let j = i; j < 2 * n; j++) a[r][j] -= times * a[i][j];
    }
  }
  return a.map((row) => row.slice(n));
}

function linear(weights) {
  // Variance of each measured query in a typical geounit of its level, from all measurements of all levels.
  const typical = data.typical;
  if (!typical) return null;
  const asked = data.measurements.map((m) => typical.queries.indexOf(m.query));
  const variances = data.measurements.map(() => 0);
  for (const block of typical.blocks) {
    const n = block.grams[0].length, information = Array.from({ length: n }, () => new Array(n).fill(0));
    asked.forEach((query, i) => {
      if (level_of[i] < block.depth) return;
      const gram = block.grams[query], weight = weights[i] * typical.leaves[level_of[i]];
      for (let r = 0; r < n; r++) for (let c = 0; c < n; c++) information[r][c] += weight * gram[r][c];
    });
    const covariance = inverse(information);
    asked.forEach((query, i) => {
      if (level_of[i] < block.depth) return;
      const above = block.depth ? 1 / typical.leaves[block.depth - 1] : 0;
      const scale = typical.leaves[level_of[i]] ** 2 * (1 / typical.leaves[block.depth] - above);
      if (scale <= 1e-9) return;
      const gram = block.grams[query];
      let trace = 0;
      for (let r = 0; r < n; r++) for (let c = 0; c < n; c++) trace += covariance ? gram[r][c] * covariance[r][c] : NaN;
      variances[i] += scale * block.copies * trace / data.measurements[i].cells;
    });
  }
  return variances;
}

function evaluate(at) {
  const budget = number(at.budget);
  const costs = data.measurements.map((m, i) => budget * number(at.levels[level_of[i]]) * number(at.queries[i]));
  const noises = costs.map((cost, i) => noise(cost, data.measurements[i]));
  const variances = linear(noises.map((each) => 1 / each.variance));
  const worst = (moves) => moves && Math.max(0, ...moves.map((move) => move.reduce((sum, part, i) => sum + part * costs[i], 0)));
  const epsilon_of = (cost) => (pure ? cost : epsilon_upper(cost));
  const semi = worst(data.semi), nearest = worst(data.nearest), first = worst(data.lines[0].moves);
  // What holds where a bound makes other records change along: each of them costs at most any change of one record, and
  // all together at most what the ball of policy semi costs (das/accounting/bounds.md).
  const paired = (cost) => (pure ? cost + data.others * nearest : (Math.sqrt(cost) + data.others * Math.sqrt(nearest)) ** 2 * (1 + 1e-12));
  const otherwise = { semi: () => semi, nominal: () => first, pair: (cost) => (nearest === null ? semi : Math.min(paired(cost), semi ?? Infinity)) };
  const lines = data.lines.map((line) => {
    if (!line.moves) return null;
    const cost = worst(line.moves), beside = line.otherwise ? otherwise[line.otherwise](cost) : null;
    return { cost, epsilon: epsilon_of(cost), otherwise: beside === null ? null : epsilon_of(beside) };
  });
  return { budget, costs, noises, variances, lines, nominal: pure ? budget : epsilon_upper(budget) };
}

// ---- moving shares ----
function spread(parts, moved, value) {
  // One part takes the value, the others share the rest as they did; whole ten-thousandths, none below one.
  const numbers = parts.map(number), rest = WHOLE - value, others = numbers.reduce((a, b) => a + b, 0) - numbers[moved];
  const wanted = numbers.map((x, i) => (i === moved ? value : Math.max(1, others > 0 ? x / others * rest : rest / (parts.length - 1))));
  const counts = wanted.map(Math.floor);
  let left = WHOLE - counts.reduce((a, b) => a + b, 0);
  const order = wanted.map((x, i) => [x - Math.floor(x), i]).filter(([, i]) => i !== moved).sort((a, b) => b[0] - a[0]);
  for (let k = 0; left > 0; k = (k + 1) % order.length, left--) counts[order[k][1]]++;
  while (left < 0) { counts[counts.indexOf(Math.max(...counts.map((x, i) => (i === moved ? 0 : x))))]--; left++; }
  return exact(counts);
}

// ---- the page ----
const element = (tag, content, properties) => {
  const made = Object.assign(document.createElement(tag), properties || {});
  (Array.isArray(content) ? content : [content]).forEach((each) => made.append(each === undefined ? "" : each));
  return made;
};
const percent = (x) => (100 * x < 0.095 ? (100 * x).toFixed(3) : (100 * x).toFixed(1)) + " %";
const shown = (x) => (Number.isFinite(x) ? x.toFixed(2) : "–");

function slider(words, id, parts, index, change) {
  const input = element("input", [], { type: "range", min: 1, max: WHOLE - parts.length + 1, step: 1, id });
  input.disabled = parts.length === 1;
  const output = element("output", "", { htmlFor: id });
  input.addEventListener("input", () => { change(index, Number(input.value)); show(); });
  const row = element("div", [element("label", words, { htmlFor: id }), input, output], { className: "slider" });
  row.update = (share) => { input.value = Math.round(WHOLE * share); output.textContent = percent(share); };
  return row;
}

const level_rows = data.levels.map((level, i) =>
  slider(level.name, `level-${level.name}`, data.levels, i, (at, value) => { state.levels = spread(state.levels, at, value); }));
byId("levels").append(...level_rows);

const query_rows = [];
for (const level of data.levels) {
  const mine = of_level(level.name);
  const rows = mine.map((i, k) => slider(data.measurements[i].query, `query-${level.name}-${k}`, mine, k, (at, value) => {
    const moved = spread(mine.map((j) => state.queries[j]), at, value);
    mine.forEach((j, n) => { state.queries[j] = moved[n]; });
  }));
  mine.forEach((i, k) => { query_rows[i] = rows[k]; });
  byId("queries").append(element("details", [element("summary", `within ${level.name}`), ...rows]));
}

const budget = byId("budget"), range = byId("budget-range");
const middle = Math.log10(number(data.budget));
Object.assign(range, { min: middle - 1.5, max: middle + 1, step: 0.005 });
range.addEventListener("input", () => { state.budget = String(Number((10 ** Number(range.value)).toPrecision(3))); show(); });
budget.addEventListener("change", () => {
  const text = budget.value.replaceAll(" ", ""), valid = /^\d+(\.\d+)?(\/[1-9]\d*)?$/.test(text) && !/\..*\//.test(text) && number(text) > 0;
  budget.setCustomValidity(valid ? "" : "a number or a fraction above zero, for example 5/2");
  budget.reportValidity();
  if (valid) { state.budget = text; show(); }
});
byId("reset").addEventListener("click", () => { state = own(); show(); });
byId("take").addEventListener("click", () => { state.levels = [...data.reference.levels]; show(); });
byId("copy").addEventListener("click", () => {
  const text = byId("toml");
  getSelection().selectAllChildren(text);
  document.execCommand("copy");
});
byId("save").addEventListener("click", () => {
  const link = element("a", "", { download: `${data.name}-strategy.toml`, href: URL.createObjectURL(new Blob([byId("toml").textContent])) });
  link.click();
});

const start = evaluate(own());
const reference = () => evaluate({ ...state, levels: data.reference.levels });

function ratio(value, base) {
  if (!Number.isFinite(value) || !(base > 1e-9)) return "";
  const change = Math.round(100 * (value / base - 1));
  return change === 0 ? "±0 %" : `${change > 0 ? "+" : "−"}${Math.abs(change)} %`;
}

function show() {
  const now = evaluate(state), beside = reference();
  const deviation = (found, i) => HALF_NORMAL * Math.sqrt(Math.max(found.variances[i], 0));
  const largest = data.typical ? Math.max(...data.measurements.map((m, i) => deviation(now, i)).filter(Number.isFinite)) : 1;
  budget.value = state.budget;
  range.value = Math.log10(now.budget);
  level_rows.forEach((row, i) => row.update(number(state.levels[i])));
  query_rows.forEach((row, i) => row.update(number(state.queries[i])));
  const promised = (found) => (found.lines[data.headline] ? quoted(found.lines[data.headline].epsilon) : "not supported");
  byId("effective").textContent = byId("strip-epsilon").textContent = promised(now);
  const { mark, otherwise } = data.lines[data.headline], other = now.lines[data.headline]?.otherwise;
  const condition = mark ? data.conditions[mark - 1].split("; otherwise")[0] : "";
  byId("effective-note").textContent = (condition ? `${condition}; otherwise ${otherwise && other ? quoted(other) : "nothing is claimed"}; ` : "") +
    `as loaded: ${promised(start)}`;
  byId("nominal").textContent = quoted(now.nominal);
  byId("strip-budget").textContent = Number(now.budget.toPrecision(4));
  byId("nominal-start").textContent = `as loaded: ${quoted(start.nominal)}`;
  byId("lines").replaceChildren(...data.lines.map((line, k) => {
    const found = now.lines[k];
    const beside = found && found.otherwise !== null ? quoted(found.otherwise) : "";
    const cells = found ? [pure ? "" : quoted(found.cost), quoted(found.epsilon), beside, quoted(start.lines[k].epsilon)] : ["", "not supported", "", ""];
    const words = line.mark && found ? `${line.words} [${line.mark}]` : line.words;
    return element("tr", [element("th", words, { scope: "row" }), ...cells.map((x) => element("td", x))]);
  }));
  byId("errors").replaceChildren(...data.measurements.map((m, i) => {
    const first = i === 0 || data.measurements[i - 1].level !== m.level;
    const cell = (content, className) => element("td", content, { className: className || "" });
    const cells = [cell(percent(number(state.levels[level_of[i]]) * number(state.queries[i]))),
      cell(shown(Math.sqrt(now.noises[i].variance)), "wide"), cell(shown(now.noises[i].mean))];
    if (data.typical) {
      const value = deviation(now, i), bar = element("span", "", { className: "bar" });
      bar.style.width = `${100 * Math.min(1, value / largest)}%`;
      cells.push(cell([shown(value), bar]), ...[start, beside].map((base) => {
        const words = ratio(value, deviation(base, i));
        return cell(words, words[0] === "+" ? "worse" : words[0] === "−" ? "better" : "same");
      }));
    }
    return element("tr", [element("th", m.level, { scope: "row", className: first ? "level" : "level again" }), element("th", m.query, { scope: "row" }), ...cells],
      { className: first ? "first" : "" });
  }));
  const paid = data.measurements.reduce((sum, m, i) => sum + (data.paid[i] ? number(state.levels[level_of[i]]) * number(state.queries[i]) : 0), 0);
  byId("paid").textContent = paid ? `${percent(paid)} of the budget measures what is published exactly: it hides nothing and buys no accuracy.` : "";
  byId("toml").textContent = toml();
}

function toml() {
  const line = (name, share) => `${/^[A-Za-z0-9_-]+$/.test(name) ? name : JSON.stringify(name)} = "${share}"`;
  const out = [`# Paste over the same keys of the config; \`das plan\` then states everything exactly.`, "[privacy]", `${currency} = "${state.budget}"`, "", "[strategy.geolevels]",
    ...data.levels.map((level, i) => line(level.name, state.levels[i]))];
  for (const level of data.levels) {
    out.push("", `[strategy.queries.${level.name}]`, ...of_level(level.name).map((i) => line(data.measurements[i].query, state.queries[i])));
  }
  return out.join("\n") + "\n";
}

document.querySelectorAll(".currency").forEach((each) => { each.textContent = currency; });
document.querySelectorAll(".reference").forEach((each) => { each.textContent = data.reference.words; });
document.querySelectorAll(".delta").forEach((each) => { each.textContent = pure ? "" : ` at delta ${data.delta}`; });
byId("conditions").replaceChildren(...data.conditions.map((text, k) => element("p", `[${k + 1}] ${text}.`)));
byId("about").textContent = data.typical
  ? "A typical geounit has as many geounits below it as the average of its level (" +
    data.levels.map((level, i) => `${level.name}: ${data.typical.units[i].toLocaleString("en")}`).join(", ") + ")."
  : "The geography is not at hand, or the queries couple too many cells: only the noise is shown.";
byId("facts").textContent = data.exact.length ? `Published exactly, with no error: ${data.exact.join("; ")}.` : "Nothing is published exactly.";
document.body.classList.toggle("noise-only", !data.typical);
show();
