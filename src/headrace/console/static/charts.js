// Charts, drawn by Plotly, which the console serves from its own package. Each is drawn afresh from the whole
// series, once a second. No text from a payload gets into a chart: Plotly reads some markup in labels.

// The library brings styles for tiled maps, which we don't draw, as text that the security policy forbids. It
// leaves them out where an element with this id is there already.
const noMapStyles = document.createElement("meta");
noMapStyles.id = "9f215cf04c5486422605d13261cb87401f4e7763b6296af81e98efbc0130da53";
const script = document.createElement("script");
const ready = new Promise((resolve) => script.addEventListener("load", () => resolve(window.Plotly)));
script.src = "/vendor/plotly/plotly.min.js";
document.head.append(noMapStyles, script);

const probe = document.createElement("span");
probe.hidden = true;
document.body.append(probe);

// The colour that a name of style.css has now.
function colour(name) {
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

export const peak = (values) => Math.max(0, ...values.filter((value) => value !== null));

const BARE = { visible: false, fixedrange: true };
const waiting = new Map(); // element -> how to draw it, until Plotly is there

// Draws `make()`, now or as soon as the library is there, and again when the colours change.
function draw(box, label, make) {
  if (box.getAttribute("aria-label") !== label) box.setAttribute("aria-label", label);
  const first = waiting.size === 0;
  waiting.set(box, make);
  if (window.Plotly) drawAll([box]);
  else if (first) ready.then(() => drawAll([...waiting.keys()]));
}

function drawAll(boxes) {
  for (const box of boxes) {
    if (!box.isConnected || box.clientWidth === 0) continue;
    const { traces, layout } = waiting.get(box)();
    window.Plotly.react(box, traces, {
      margin: { l: 0, r: 0, t: 2, b: 0 }, height: box.clientHeight, width: box.clientWidth, showlegend: false,
      paper_bgcolor: "transparent", plot_bgcolor: "transparent", hovermode: false, dragmode: false,
      font: { family: getComputedStyle(box).fontFamily, size: 11, color: colour("faint") },
      ...layout,
    }, { staticPlot: true, displayModeBar: false });
  }
}

document.addEventListener("themechange", () => { if (window.Plotly) drawAll([...waiting.keys()]); });
new ResizeObserver(() => { if (window.Plotly) drawAll([...waiting.keys()]); }).observe(document.body);

// The newest value stands at the right edge; a series that is still short leaves the left empty.
const ages = (values) => values.map((_, index) => index - values.length + 1);
const past = (length) => ({ ...BARE, range: [1 - length, 0] });
const upTo = (top) => ({ ...BARE, range: [0, (top || 1) * 1.08] });

function line(values, name, more = {}) {
  return {
    type: "scatter", mode: "lines", x: ages(values), y: values, line: { color: colour(name), width: 1.8 }, ...more,
  };
}

export function drawArea(box, values, { length, label }) {
  draw(box, label, () => ({
    traces: [line(values, "water", { fill: "tozeroy", fillcolor: colour("water-wash") })],
    layout: { xaxis: past(length), yaxis: upTo(peak(values)) },
  }));
}

export function drawLines(box, series, { length, label }) {
  draw(box, label, () => ({
    traces: series.map(({ values, name }) => line(values, name)),
    layout: { xaxis: past(length), yaxis: upTo(Math.max(...series.map(({ values }) => peak(values)))) },
  }));
}

export function drawBars(box, values, { length, label, name }) {
  draw(box, label, () => ({
    traces: [{ type: "bar", x: ages(values), y: values, marker: { color: colour(name) } }],
    layout: { xaxis: { ...past(length), range: [0.5 - length, 0.5] }, yaxis: upTo(peak(values)), bargap: 0.25 },
  }));
}

const short = (ms) => (ms >= 1000 ? `${ms / 1000} s` : String(ms));

// `marks` are quantiles, {name, ms}: each stands where its milliseconds belong between the bars.
export function drawHistogram(box, counts, bounds, { label, marks }) {
  const place = (ms) => {
    const bar = bounds.findIndex((bound) => ms <= bound);
    return bar === -1 ? bounds.length : bar;
  };
  draw(box, label, () => ({
    traces: [{ type: "bar", x: counts.map((_, index) => index), y: counts, marker: { color: colour("water") } }],
    layout: {
      margin: { l: 0, r: 0, t: 2, b: 18 }, bargap: 0.25,
      xaxis: {
        fixedrange: true, showgrid: false, zeroline: false, range: [-0.6, counts.length - 0.4], tickangle: 0,
        tickvals: [0, 3, 6, 9], ticktext: [0, 3, 6, 9].map((index) => `${short(bounds[index])}${index ? "" : " ms"}`),
      },
      yaxis: upTo(Math.max(1, ...counts)),
      shapes: marks.filter(({ ms }) => ms !== null).map(({ name, ms }) => ({
        type: "line", x0: place(ms), x1: place(ms), yref: "paper", y0: 0, y1: 1,
        line: { color: colour(name), width: 2, dash: "dot" },
      })),
    },
  }));
}

// When events happened (upwards) against when they came (to the right): on time is the diagonal.
export function drawEventTime(box, { points, watermarks, from, to, floor }, label) {
  draw(box, label, () => {
    const dates = (values) => values.map((ms) => new Date(ms));
    const axis = { fixedrange: true, gridcolor: colour("edge"), zeroline: false, type: "date", tickformat: "%H:%M:%S", nticks: 4 };
    return {
      traces: [
        { type: "scatter", mode: "lines", x: dates([from, to]), y: dates([from, to]), line: { color: colour("faint"), width: 1, dash: "dot" } },
        { type: "scatter", mode: "lines", x: dates(watermarks.map(([at]) => at)), y: dates(watermarks.map(([, mark]) => mark)), line: { color: colour("violet"), width: 2, shape: "hv" } },
        { type: "scatter", mode: "markers", x: dates(points.map(([at]) => at)), y: dates(points.map(([, event]) => event)), marker: { color: colour("water"), size: 4, opacity: 0.65 } },
      ],
      layout: {
        margin: { l: 56, r: 8, t: 6, b: 22 },
        xaxis: { ...axis, range: dates([from, to]) }, yaxis: { ...axis, range: dates([floor, to + (to - floor) * 0.03]) },
      },
    };
  });
}

// Degrees as they are, shrunk by the latitude in the middle, so that shapes keep theirs there.
export function drawMap(box, { places, alerts, chosen, home }, label) {
  draw(box, label, () => {
    const all = [...places, ...alerts, ...(chosen ?? []), ...(home ? [home] : [])];
    const [south, north] = span(all.map(([latitude]) => latitude), 4);
    const [west, east] = span(all.map(([, longitude]) => longitude), 6);
    const axis = { fixedrange: true, gridcolor: colour("edge"), zeroline: false, ticksuffix: "°", nticks: 6 };
    const dots = (list, name, size, opacity, more = {}) => ({
      type: "scatter", mode: "markers", x: list.map(([, longitude]) => longitude), y: list.map(([latitude]) => latitude),
      marker: { color: colour(name), size, opacity }, ...more,
    });
    const traces = [dots(places, "water", 3.5, 0.45), dots(alerts, "heat", 6, chosen ? 0.35 : 0.8)];
    if (chosen) traces.push(dots(chosen, "heat", 11, 1, { mode: "lines+markers", line: { color: colour("heat"), width: 2 } }));
    if (home) traces.push(dots([home], "leaf", 11, 1, { marker: { color: colour("leaf"), size: 11, symbol: "square" } }));
    return {
      traces,
      layout: {
        margin: { l: 34, r: 6, t: 4, b: 20 },
        xaxis: { ...axis, range: [west, east], constrain: "domain" },
        yaxis: { ...axis, range: [south, north], scaleanchor: "x", scaleratio: 1 / Math.max(0.2, Math.cos(((south + north) / 2) * (Math.PI / 180))), constrain: "domain" },
      },
    };
  });
}

// A span that holds all values, with a margin, and is never narrower than `least`.
function span(values, least) {
  if (values.length === 0) return [-least, least];
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const margin = Math.max((high - low) * 0.06, (least - (high - low)) / 2, 0.5);
  return [low - margin, high + margin];
}
