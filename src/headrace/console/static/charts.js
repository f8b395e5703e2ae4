// Small charts as inline SVG. Each one is drawn afresh from the whole series, once a second.

const NAMESPACE = "http://www.w3.org/2000/svg";
const WIDTH = 300;
const HEIGHT = 60;

function shape(kind, attributes) {
  const element = document.createElementNS(NAMESPACE, kind);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

function draw(svg, label, shapes) {
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  svg.setAttribute("aria-label", label);
  svg.replaceChildren(shape("path", { class: "ground", d: `M0 ${HEIGHT}H${WIDTH}` }), ...shapes);
}

export const peak = (values) => Math.max(0, ...values.filter((value) => value !== null));

// The newest value stands at the right edge; a series that is still short leaves the left empty.
function places(values, length, top) {
  const step = WIDTH / Math.max(1, length - 1);
  const first = WIDTH - step * (values.length - 1);
  return values.map((value, index) => ({
    x: first + step * index,
    y: value === null ? null : HEIGHT - 2 - (value / top) * (HEIGHT - 8),
  }));
}

// Runs of known values: a gap in what is known is a gap in the line.
function runs(points) {
  const found = [[]];
  for (const point of points) {
    if (point.y === null) found.push([]);
    else found.at(-1).push(point);
  }
  return found.filter((run) => run.length > 0);
}

const at = ({ x, y }) => `${x.toFixed(1)} ${y.toFixed(1)}`;
const line = (run) => `M${run.map(at).join("L")}`;
const area = (run) => `${line(run)}L${run.at(-1).x.toFixed(1)} ${HEIGHT}L${run[0].x.toFixed(1)} ${HEIGHT}Z`;

export function drawArea(svg, values, { length, label }) {
  const found = runs(places(values, length, peak(values) || 1));
  draw(svg, label, found.flatMap((run) => [
    shape("path", { class: "area", d: area(run) }),
    shape("path", { class: "line", d: line(run) }),
  ]));
}

export function drawLines(svg, series, { length, label }) {
  const top = Math.max(...series.map(({ values }) => peak(values))) || 1;
  draw(svg, label, series.flatMap(({ values, name }) =>
    runs(places(values, length, top)).map((run) => shape("path", { class: `line ${name}`, d: line(run) }))));
}

export function drawBars(svg, values, { length, label }) {
  const top = peak(values) || 1;
  const step = WIDTH / length;
  const first = WIDTH - step * values.length;
  draw(svg, label, values.map((value, index) => bar(first + step * index, step, (value ?? 0) / top)));
}

export function drawHistogram(svg, counts, { label }) {
  const top = Math.max(1, ...counts);
  const step = WIDTH / counts.length;
  draw(svg, label, counts.map((value, index) => bar(step * index, step, value / top)));
}

// The smallest bar can still be seen; nothing is no bar.
function bar(x, step, share) {
  const height = share > 0 ? Math.max(3, share * (HEIGHT - 4)) : 0;
  return shape("rect", {
    class: "bar",
    x: (x + step * 0.12).toFixed(1), width: (step * 0.76).toFixed(1),
    y: (HEIGHT - height).toFixed(1), height: height.toFixed(1),
  });
}
