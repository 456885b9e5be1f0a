/* Lines, areas and bars, drawn as SVG; the same rows as a table beside it. */

const MAX_SERIES = 8;
const COMPACT = 1e4;

/* What is larger has no difference to others that is a number. */
const drawable = (value) => typeof value === "number" && Math.abs(value) < 1e300;

/** {x, series, kind, labels, positions} of rows and columns, or null if there is no number in them. */
function chartOf(told) {
  const { columns, rows } = told;
  const named = (key) => columns.find((column) => column.key === key);
  const numeric = columns.filter(({ type }) => type === "number");
  let x = named(spec.x) ?? columns.find(({ type }) => type === "date") ?? columns.find(({ type }) => type !== "number");
  const rising = (column) => rows.every((row, at) => drawable(column.get(row)) && (at === 0 || column.get(row) > column.get(rows[at - 1])));
  if (!x && !spec.y && numeric.length > 1 && rows.length > 1 && rising(numeric[0])) x = numeric[0];
  const series = (spec.y ?? numeric.map(({ key }) => key)).map(named).filter((column) => column && column !== x && column.type === "number");
  if (!series.length || !rows.length) return null;
  const kind = spec.kind ?? (x && x.type !== "text" && x.type !== "boolean" && rows.length > 2 ? "line" : "bar");
  let ordered = rows, scale = "band";
  const valid = x && (x.type === "date" ? (row) => isDate(x.get(row)) : x.type === "number" ? (row) => drawable(x.get(row)) : null);
  if (valid && kind !== "bar") {
    ordered = sorted(rows.filter(valid), x, false);
    scale = x.type === "date" ? "time" : "linear";
  }
  if (!ordered.length) return null;
  const at = (row, index) => (scale === "time" ? Date.parse(x.get(row)) : scale === "linear" ? x.get(row) : index);
  return { x, kind, scale, rows: ordered, places: ordered.map(at), series: series.slice(0, MAX_SERIES), left_out: series.slice(MAX_SERIES) };
}

/** Round numbers from below the least to above the most: at least two, and room for `wanted` of them. */
function ticks(least, most, wanted) {
  if (least === most) { least = Math.min(0, least); most = Math.max(most, least + Math.max(1, Math.abs(least) * 1e-6)); }
  const rough = (most - least) / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 2.5, 5, 10].find((unit) => power * unit >= rough * 0.999);
  const first = Math.floor(least / step + 1e-9);
  const last = Math.ceil(most / step - 1e-9);
  const found = Array.from({ length: last - first + 1 }, (_, at) => Number(((first + at) * step).toPrecision(12)));
  return found.at(-1) > found[0] ? found : [least, most];  // too close to each other, or to zero, to be told apart by so many digits
}

function axisText(number, all) {
  const most = Math.max(...all.map(Math.abs));
  const short = formatter(`c${locale()}`, () => new Intl.NumberFormat(locale(), { notation: "compact", maximumFractionDigits: 2 }));
  return most >= COMPACT || (most > 0 && most < 1e-4) ? short.format(number) : numberText(number, undefined, false);
}

const STEPS = [[60, "minute"], [3600, "hour"], [86_400, "day"], [2_629_746, "month"], [31_556_952, "year"]];
/** Dates on an axis: as exact as the time between two of them. */
function timeText(time, between) {
  const seconds = between / 1000;
  const unit = STEPS.findLast(([size]) => seconds >= size * 0.9)?.[1] ?? "minute";
  const parts = { minute: { hour: "numeric", minute: "2-digit" }, hour: { hour: "numeric", minute: "2-digit" }, day: { day: "numeric", month: "short" }, month: { month: "short", year: "2-digit" }, year: { year: "numeric" } }[unit];
  return formatter(`t${unit}${zone()}${locale()}`, () => new Intl.DateTimeFormat(locale(), { ...parts, timeZone: unit === "minute" || unit === "hour" ? zone() : "UTC" })).format(time);
}

function chartNode(told, chart) {
  const colour = (column) => `var(--s${chart.series.indexOf(column)})`;
  const hidden = new Set();
  let marked = -1;
  let drawn = null;
  const tip = el("div", { class: "tip", hidden: true });
  const said = el("p", { class: "seen", role: "status" });
  const plot = el("div", { class: "plot" }, tip);
  const nameOf = (row, index) => (chart.x ? cellText(chart.x.get(row), chart.x) || "–" : numberText(index + 1));

  function draw() {
    const width = plot.clientWidth, height = plot.clientHeight;
    if (!width || !height) return;
    const series = chart.series.filter((column) => !hidden.has(column));
    const valueOf = (row, column) => { const value = column.get(row); return drawable(value) ? value : null; };
    const stacked = spec.stacked && series.length > 1 && chart.kind !== "line";
    const { rows, places } = chart;

    // Values: bars and areas stand on zero, and lines do where it is near.
    let least = Infinity, most = -Infinity;
    const bases = stacked ? series.map(() => new Float64Array(rows.length)) : null;
    rows.forEach((row, index) => {
      let up = 0, down = 0;
      series.forEach((column, number) => {
        const value = valueOf(row, column);
        if (value === null) return;
        if (stacked) { bases[number][index] = value < 0 ? down : up; if (value < 0) down += value; else up += value; }
        least = Math.min(least, stacked ? down : value);
        most = Math.max(most, stacked ? up : value);
      });
    });
    if (least > most) { least = 0; most = 1; }
    if (chart.kind !== "line" || (least > 0 && least < most * 0.6)) least = Math.min(0, least);
    if (chart.kind !== "line" || (most < 0 && most > least * 0.6)) most = Math.max(0, most);
    const levels = ticks(least, most, Math.max(2, Math.floor(height / 52)));
    const labels = levels.map((level) => axisText(level, levels));
    const left = Math.ceil(Math.max(...labels.map(small)) + 10), right = 10, top = 8, bottom = 26;
    const inner = Math.max(20, width - left - right), tall = Math.max(20, height - top - bottom);
    const [low, high] = [levels[0], levels.at(-1)];
    const y = (value) => top + tall * (1 - (value - low) / (high - low));
    const band = inner / rows.length;
    const span = places.at(-1) - places[0];
    const banded = chart.scale === "band";
    const x = (index) => left + (banded ? band * (index + 0.5) : span ? inner * (places[index] - places[0]) / span : inner / 2);

    const svg = el("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: "0", "aria-label": summary(series) });
    levels.forEach((level, at) => svg.append(
      el("line", { class: "grid", x1: left, x2: width - right, y1: Math.round(y(level)), y2: Math.round(y(level)) }),
      el("text", { x: left - 8, y: y(level) + 4, "text-anchor": "end" }, labels[at])));
    for (const [place, text, anchor] of marks({ x, left, inner, span, places, rows, width })) svg.append(el("text", { x: place, y: height - 7, "text-anchor": anchor }, text));
    const mark = svg.appendChild(el("g"));

    const thin = band < 3;
    series.forEach((column, number) => {
      const group = svg.appendChild(el("g", { "data-series": column.key }));
      group.style.color = colour(column);
      if (chart.kind === "bar" && !thin) bars(group, column, number);
      else lines(group, column, number);
    });
    if (low <= 0 && high >= 0) svg.append(el("line", { class: "axis", x1: left, x2: width - right, y1: Math.round(y(0)), y2: Math.round(y(0)) }));
    const dots = svg.appendChild(el("g"));

    function bars(group, column, number) {
      const room = Math.min(band * 0.76, 56 * (stacked ? 1 : series.length));
      const wide = stacked ? room : room / series.length;
      const gap = !stacked && series.length > 1 && wide > 5 ? 1 : 0;
      let path = "";
      rows.forEach((row, index) => {
        const value = valueOf(row, column);
        if (value === null) return;
        const start = x(index) - room / 2 + (stacked ? 0 : wide * number) + gap;
        const base = stacked ? bases[number][index] : 0;
        const [from, end] = [y(base), y(base + value)];
        const w = Math.max(1, wide - 2 * gap), r = Math.min(3, w / 2, Math.abs(end - from)), s = Math.sign(from - end) * r;
        path += stacked ? `M${start} ${from}V${end}h${w}V${from}Z` : `M${start} ${from}V${end + s}q0 ${-s} ${r} ${-s}h${w - 2 * r}q${r} 0 ${r} ${s}V${from}Z`;
      });
      group.append(el("path", { d: path, fill: "currentColor" }));
    }

    /** One line, broken where values are missing; of many points each column of pixels keeps its least and its most. */
    function lines(group, column, number) {
      const runs = [];
      let run = null;
      const points = Math.ceil(rows.length / (inner * 2)) > 1 ? bucketed(column) : rows.map((_, index) => index);
      for (const index of points) {
        const value = valueOf(rows[index], column);
        if (value === null) { run = null; continue; }
        if (!run) runs.push(run = []);
        const base = stacked ? bases[number][index] : 0;
        run.push([x(index), y(base + value), y(stacked ? base : Math.max(low, Math.min(high, 0)))]);
      }
      const trace = (dots) => dots.map(([px, py], at) => `${at ? "L" : "M"}${px.toFixed(1)} ${py.toFixed(1)}`).join("");
      if (chart.kind !== "line")
        for (const dots of runs) group.append(el("path", { d: `${trace(dots)}${dots.toReversed().map(([px, , base]) => `L${px.toFixed(1)} ${base.toFixed(1)}`).join("")}Z`, fill: "currentColor", "fill-opacity": stacked ? 0.55 : 0.16 }));
      group.append(el("path", { d: runs.map(trace).join(""), fill: "none", stroke: "currentColor", "stroke-width": 2, "stroke-linejoin": "round", "stroke-linecap": "round" }));
      const few = rows.length <= 24;
      for (const dots of runs) if (few || dots.length === 1) for (const [px, py] of dots) group.append(el("circle", { cx: px, cy: py, r: 3, fill: "currentColor" }));
    }
    function bucketed(column) {
      const found = [];
      const size = rows.length / inner;
      for (let start = 0; start < rows.length; start += size) {
        let lowest = -1, highest = -1;
        for (let index = Math.floor(start); index < Math.min(rows.length, start + size); index += 1) {
          const value = valueOf(rows[index], column);
          if (value === null) continue;
          if (lowest < 0 || value < valueOf(rows[lowest], column)) lowest = index;
          if (highest < 0 || value > valueOf(rows[highest], column)) highest = index;
        }
        if (lowest >= 0) found.push(...(lowest === highest ? [lowest] : [lowest, highest].sort((a, b) => a - b)));
      }
      return found;
    }

    svg.addEventListener("pointermove", (event) => point(nearest(event.clientX - plot.getBoundingClientRect().left)));
    svg.addEventListener("pointerleave", () => point(-1));
    svg.addEventListener("blur", () => point(-1));
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, Home: -rows.length, End: rows.length }[event.key];
      if (event.key === "Escape") point(-1);
      if (!step) return;
      event.preventDefault();
      point(marked < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.max(0, Math.min(rows.length - 1, marked + step)), true);
    });
    function nearest(px) {
      if (banded) return Math.max(0, Math.min(rows.length - 1, Math.floor((px - left) / band)));
      let [from, to] = [0, rows.length - 1];
      while (to - from > 1) { const middle = (from + to) >> 1; if (x(middle) < px) from = middle; else to = middle; }
      return px - x(from) < x(to) - px ? from : to;
    }
    function point(index, aloud = false) {
      marked = index;
      mark.replaceChildren();
      dots.replaceChildren();
      tip.hidden = index < 0 || !series.length;
      if (tip.hidden) return;
      const row = rows[index], px = x(index);
      if (banded && chart.kind === "bar" && !thin) mark.append(el("rect", { class: "band", x: px - band / 2, y: top, width: band, height: tall }));
      else mark.append(el("line", { class: "mark", x1: Math.round(px), x2: Math.round(px), y1: top, y2: top + tall }));
      const lines = series.map((column, number) => {
        const value = valueOf(row, column);
        if (value !== null && (chart.kind !== "bar" || thin)) {
          const dot = el("circle", { cx: px, cy: y(value + (stacked ? bases[number][index] : 0)), r: 4.5, fill: "currentColor", stroke: "var(--bg)", "stroke-width": 2 });
          dot.style.color = colour(column);
          dots.append(dot);
        }
        const swatch = el("i");
        swatch.style.setProperty("--c", colour(column));
        return el("div", {}, swatch, el("span", { dir: "auto" }, clip(column.label, 60)), el("em", {}, value === null ? "–" : cellText(value, column)));
      });
      tip.replaceChildren(el("b", { dir: "auto" }, clip(nameOf(row, index), 80)), ...lines);
      const at = px + 14 + tip.offsetWidth > width ? Math.max(0, px - 14 - tip.offsetWidth) : px + 14;
      tip.style.left = `${at}px`;
      tip.style.top = `${Math.max(0, top + tall / 2 - tip.offsetHeight / 2)}px`;
      if (aloud) said.textContent = `${nameOf(row, index)}: ${series.map((column) => `${column.label} ${cellText(column.get(row), column) || "none"}`).join(", ")}`;
    }
    const focused = drawn?.contains(document.activeElement) || drawn === document.activeElement;
    drawn?.remove();
    drawn = svg;
    plot.prepend(svg);
    if (focused) svg.focus({ preventScroll: true });
    if (marked >= 0) point(marked);
  }

  /** [place, text, anchor] along the x axis: as many as fit, the first and the last inside the picture. */
  function marks({ x, left, inner, span, places, rows, width }) {
    const found = [];
    const put = (place, text) => {
      const wide = small(text) / 2;
      const shown = Math.max(left - 6 + wide, Math.min(width - 2 - wide, place));
      if (!found.length || shown - wide > found.at(-1).end + 12) found.push({ shown, text, end: shown + wide });
    };
    if (chart.scale === "band") {
      const texts = rows.length <= 400 ? rows.map((row, index) => nameOf(row, index)) : null;
      const room = inner / rows.length;
      const widest = texts ? Math.max(...texts.map((text) => small(clip(text, 18)))) + 10 : 70;
      const every = Math.max(1, Math.ceil(Math.min(widest, Math.max(70, room)) / room));
      for (let index = 0; index < rows.length; index += every) {
        let text = texts ? texts[index] : nameOf(rows[index], index);
        const fits = Math.max(room * every - 14, 24);
        if (small(text) > fits) { while (text.length > 1 && small(`${text}…`) > fits) text = text.slice(0, -1); text = `${text.trimEnd()}…`; }
        put(x(index), text);
      }
    } else if (chart.scale === "linear") {
      const levels = ticks(places[0], places.at(-1), Math.max(2, Math.floor(inner / 90))).filter((level) => level >= places[0] && level <= places.at(-1));
      for (const level of levels) put(left + (span ? inner * (level - places[0]) / span : inner / 2), axisText(level, levels));
    } else {
      const fits = Math.max(1, Math.floor(inner / 84));
      const every = Math.ceil(rows.length / fits);
      const even = rows.length <= 120;  // few points are named as they come, many by the time between marks
      for (let at = 0; at < (even ? rows.length : fits); at += even ? every : 1) {
        const index = even ? at : nearestTo(places, places[0] + (span * at) / Math.max(1, fits - 1));
        put(x(index), timeText(places[index], even ? (span * every) / Math.max(1, rows.length - 1) : span / Math.max(1, fits - 1)));
      }
    }
    return found.map(({ shown, text }) => [shown, text, "middle"]);
  }
  function summary(series) {
    const parts = series.map((column) => {
      let least = Infinity, most = -Infinity;
      for (const row of chart.rows) { const value = column.get(row); if (drawable(value)) { least = Math.min(least, value); most = Math.max(most, value); } }
      return `${column.label} from ${cellText(least, column)} to ${cellText(most, column)}`;
    });
    return `${spec.title ?? "Chart"}, ${plural(chart.rows.length, "point")}: ${parts.join("; ")}. Arrow keys go through the values.`;
  }

  const legend = chart.series.length > 1 || chart.kind === "line" ? el("div", { class: "legend", role: "group", "aria-label": "Series" }, ...chart.series.map((column) => {
    const swatch = el("i");
    swatch.style.setProperty("--c", colour(column));
    const one = el("button", { type: "button", "aria-pressed": "true", click: () => {
      if (hidden.has(column)) hidden.delete(column); else if (hidden.size < chart.series.length - 1) hidden.add(column);
      one.setAttribute("aria-pressed", String(!hidden.has(column)));
      draw();
    } }, swatch, el("span", { dir: "auto" }, clip(column.label, 60)));
    return one;
  })) : null;
  if (chart.left_out.length) legend?.append(el("span", { class: "quiet" }, `and ${plural(chart.left_out.length, "more column")} in the table`));
  const title = heading() ?? (chart.series.length === 1 && !legend ? el("h1", { dir: "auto" }, chart.series[0].label) : null);
  const picture = el("div", { class: "view grows" }, title ? legend : null, plot, said);
  let table = null;
  const swap = button("Table", () => {
    const turned = !picture.hidden;
    table ??= tableNode(told);
    if (!table.isConnected) node.append(table);
    picture.hidden = turned;
    if (!title && legend) legend.hidden = turned;
    table.hidden = !turned;
    swap.textContent = turned ? "Chart" : "Table";
    if (turned) table.repaint(); else draw();
  });
  const node = el("section", { class: "view grows" }, el("div", { class: "bar" }, title ?? legend, el("span", { class: "grow" }), swap, expander()), picture);
  new ResizeObserver(draw).observe(plot);
  return node;
}

const small = (text) => widthOf(text) * 0.87;  // labels are set smaller than the text that is measured
function nearestTo(places, place) {
  let [from, to] = [0, places.length - 1];
  while (to - from > 1) { const middle = (from + to) >> 1; if (places[middle] < place) from = middle; else to = middle; }
  return place - places[from] < places[to] - place ? from : to;
}

views.chart = {
  show(result) {
    const told = tabular(dataOf(result));
    if (!told) return null;
    if (!told.rows.length) return el("section", { class: "view" }, heading(), empty("There are no rows."));
    const chart = chartOf(told);
    if (!chart) return living(() => tableNode(told, { title: heading(), tools: [el("span", { class: "quiet" }, "No numbers to draw"), expander()] }));
    return living(() => chartNode(told, chart));
  },
};
