// Draws a profile that stands as JSON in the page: time line with memory, roofline, table of nodes, graph.
"use strict";

const profile = JSON.parse(document.getElementById("data").textContent);
const nodes = profile.nodes;
const total = Math.max(1, profile.ns);

// Numbers as people write them -------------------------------------------------------------------

function scaled(number, units, base) {
  if (number === 0) return "0";
  let k = 0;
  while (number >= base && k < units.length - 1) { number /= base; k++; }
  return `${number >= 100 ? number.toFixed(0) : number.toPrecision(3)} ${units[k]}`;
}
const timeText = ns => scaled(ns, ["ns", "µs", "ms", "s"], 1000);
const bytesText = bytes => scaled(bytes, ["bytes", "kB", "MB", "GB"], 1000);
const shortName = name => (name.length > 27 ? `…${name.slice(-26)}` : name); // ends differ, beginnings seldom
const known = (value, text) => (value === null || value === undefined ? "" : text(value));

// Colours: a hue for each kernel, the same everywhere ----------------------------------------------

const kernels = [...new Set(nodes.map(node => node.kernel))];
const hue = new Map(kernels.map((kernel, k) => [kernel, Math.round((k * 137.5) % 360)]));
const colour = node => `hsl(${hue.get(node.kernel)} 58% 58%)`;

// Elements ------------------------------------------------------------------------------------------

function svg(name, attributes, parent, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  if (parent) parent.appendChild(element);
  return element;
}

function html(name, parent, text, className) {
  const element = document.createElement(name);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  parent.appendChild(element);
  return element;
}

// One node is chosen at a time, wherever it is clicked ----------------------------------------------

const shown = nodes.map(() => []);
let chosen = null;

function show(element, k) {
  shown[k].push(element);
  element.addEventListener("click", () => choose(k, element));
  return element;
}

function choose(k, from) {
  if (chosen !== null) shown[chosen].forEach(element => element.classList.remove("chosen"));
  chosen = k;
  for (const element of shown[k]) {
    element.classList.add("chosen");
    const pane = element.closest(".scroll");
    if (pane && !(from && pane.contains(from))) element.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  const node = nodes[k], detail = document.getElementById("detail");
  detail.hidden = false;
  detail.replaceChildren();
  html("b", detail, node.node);
  const list = html("dl", detail);
  const rows = [
    ["kernel", node.choice || node.kernel],
    ["time", `${timeText(node.ns)}, ${(100 * node.share).toFixed(1)} %`],
    ["expected", node.estimated_ns ? `${timeText(node.estimated_ns)} in one thread` : ""],
    ["parts", node.parts],
    ["arithmetic", known(node.multiply_adds, n => (n ? `${n.toLocaleString("en")} multiply-adds` : ""))],
    ["traffic", known(node.bytes, bytesText)],
    ["bound", known(node.bound_ns, timeText)],
    ["in use", known(node.held, bytesText)],
  ];
  for (const [name, text] of rows.filter(row => row[1] !== "" && row[1] !== null)) {
    html("dt", list, name);
    html("dd", list, text);
  }
}

// Time line -----------------------------------------------------------------------------------------

function drawTimeline() {
  const element = document.getElementById("timeline"), width = 1200, bar = 46, top = 4, below = 76;
  const memory = nodes.length && nodes.every(node => node.held !== null);
  const height = top + bar + 20 + (memory ? below + 6 : 0);
  element.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const x = ns => (width * ns) / total;
  const begins = [];
  let at = 0;
  nodes.forEach((node, k) => {
    begins.push(at);
    const rect = svg("rect", { x: x(at), y: top, width: Math.max(0.3, x(node.ns)), height: bar, fill: colour(node) });
    svg("title", {}, rect, `${node.node}: ${timeText(node.ns)}`);
    element.appendChild(show(rect, k));
    at += node.ns;
  });
  for (let tick = 0; tick <= 5; tick++) {
    const anchor = tick === 0 ? "start" : tick === 5 ? "end" : "middle";
    const place = { x: (width * tick) / 5, y: top + bar + 14, "text-anchor": anchor, class: "tick" };
    svg("text", place, element, timeText((total * tick) / 5));
  }
  if (!memory) return;
  const peak = Math.max(1, ...nodes.map(node => node.held)), base = height - 2;
  const y = bytes => base - ((below - 14) * bytes) / peak;
  const points = nodes.map((node, k) => `L${x(begins[k])},${y(node.held)}L${x(begins[k] + node.ns)},${y(node.held)}`);
  svg("path", { d: `M0,${base}${points.join("")}L${width},${base}Z`, class: "held" }, element);
  svg("text", { x: 4, y: base - below + 12, class: "tick" }, element, `at most ${bytesText(peak)}`);
}

function drawLegend() {
  const legend = document.getElementById("legend");
  for (const kernel of kernels.filter(Boolean)) {
    const of = nodes.filter(node => node.kernel === kernel), share = of.reduce((sum, node) => sum + node.share, 0);
    const entry = html("span", legend, `${kernel} ${(100 * share).toFixed(1)} %`);
    entry.style.setProperty("--hue", hue.get(kernel));
  }
}

// Roofline ------------------------------------------------------------------------------------------

function drawRoofline() {
  const element = document.getElementById("roofline"), width = 560, height = 360, left = 44, bottom = 30;
  const dots = nodes.map((node, k) => ({ node, k })).filter(({ node }) => node.multiply_adds && node.bytes && node.ns);
  const peak = profile.peak;
  if (!dots.length || !peak) { document.getElementById("roofline-section").hidden = true; return; }
  element.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const intensity = node => (2 * node.multiply_adds) / node.bytes, rate = node => (2 * node.multiply_adds) / node.ns;
  const all = dots.map(({ node }) => intensity(node)), rates = dots.map(({ node }) => rate(node));
  const low = values => Math.floor(Math.log10(Math.max(1e-6, Math.min(...values))));
  const high = values => Math.ceil(Math.log10(Math.max(...values)) + 1e-9);
  const xs = [low(all), Math.max(high(all), low(all) + 1)];
  const ys = [low([...rates, peak.gflops]), high([...rates, peak.gflops])];
  const x = value => left + ((width - left - 20) * (Math.log10(value) - xs[0])) / (xs[1] - xs[0]);
  const y = value => 8 + ((height - bottom - 8) * (ys[1] - Math.log10(value))) / Math.max(1, ys[1] - ys[0]);
  for (let power = xs[0]; power <= xs[1]; power++) {
    svg("line", { x1: x(10 ** power), x2: x(10 ** power), y1: 8, y2: height - bottom, class: "axis" }, element);
    const place = { x: x(10 ** power), y: height - bottom + 14, "text-anchor": "middle", class: "tick" };
    svg("text", place, element, String(10 ** power));
  }
  for (let power = ys[0]; power <= ys[1]; power++) {
    svg("line", { x1: left, x2: width - 20, y1: y(10 ** power), y2: y(10 ** power), class: "axis" }, element);
    const place = { x: left - 6, y: y(10 ** power) + 4, "text-anchor": "end", class: "tick" };
    svg("text", place, element, String(10 ** power));
  }
  const axis = { x: (left + width) / 2, y: height - 3, "text-anchor": "middle", class: "tick" };
  svg("text", axis, element, "operations a byte; upwards GFLOP/s");
  const samples = Array.from({ length: 60 }, (_, k) => 10 ** (xs[0] + ((xs[1] - xs[0]) * k) / 59));
  const roof = samples.map(value => [x(value), y(Math.max(10 ** ys[0], Math.min(peak.gflops, peak.gbytes * value)))]);
  svg("path", { d: "M" + roof.map(point => point.join(",")).join("L"), class: "roof" }, element);
  dots.sort((a, b) => b.node.ns - a.node.ns);
  for (const { node, k } of dots) {
    const r = Math.max(2, 26 * Math.sqrt(node.ns / total));
    const place = { cx: x(intensity(node)), cy: y(rate(node)), r, fill: colour(node), "fill-opacity": 0.75 };
    const dot = svg("circle", place);
    svg("title", {}, dot, `${node.node}: ${rate(node).toFixed(1)} GFLOP/s`);
    element.appendChild(show(dot, k));
  }
}

// Table ---------------------------------------------------------------------------------------------

const COLUMNS = [
  ["node", "text", node => node.node, node => shortName(node.node)],
  ["kernel", "text", node => node.kernel || "", node => node.kernel || ""],
  ["time", "", node => node.ns, node => timeText(node.ns)],
  ["share", "", node => node.ns, node => `${(100 * node.share).toFixed(1)} %`],
  ["GFLOP/s", "", node => node.gflops || 0, node => (node.gflops ? node.gflops.toFixed(1) : "")],
  ["GB/s", "", node => node.gbytes || 0, node => known(node.gbytes, value => value.toFixed(1))],
  ["of peak", "", node => node.of_peak || 0, node => known(node.of_peak, value => `${(100 * value).toFixed(0)} %`)],
];

function drawTable() {
  const table = document.getElementById("nodes"), head = html("tr", table.tHead);
  let sorted = 2, down = true;
  const rows = nodes.map((node, k) => {
    const row = document.createElement("tr");
    for (const [, className, , text] of COLUMNS) html("td", row, text(node), className);
    row.firstChild.title = node.node;
    return show(row, k);
  });
  function order() {
    const value = COLUMNS[sorted][2], sign = down ? -1 : 1;
    const compare = (a, b) => (typeof a === "string" ? a.localeCompare(b) : a - b);
    const places = nodes.map((_, k) => k).sort((a, b) => sign * compare(value(nodes[a]), value(nodes[b])) || a - b);
    table.tBodies[0].replaceChildren(...places.map(k => rows[k]));
  }
  COLUMNS.forEach(([name, className], k) => {
    html("th", head, name, className).addEventListener("click", () => {
      down = k === sorted ? !down : k > 1;
      sorted = k;
      order();
    });
  });
  document.getElementById("filter").addEventListener("input", event => {
    const wanted = event.target.value.toLowerCase();
    nodes.forEach((node, k) => {
      rows[k].hidden = !`${node.node} ${node.kernel || ""}`.toLowerCase().includes(wanted);
    });
  });
  order();
}

// Graph ---------------------------------------------------------------------------------------------

function drawGraph() {
  if (!nodes.length || nodes[0].row === undefined) { document.getElementById("graph-section").hidden = true; return; }
  const element = document.getElementById("graph"), wide = 190, high = 46, box = 174, tall = 30;
  const columns = nodes.map(node => node.column), rows = nodes.map(node => node.row);
  const first = Math.min(...columns), last = Math.max(...columns), deep = Math.max(...rows);
  const width = (last - first + 1) * wide + 16, height = (deep + 1) * high + 16;
  for (const [name, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` })) {
    element.setAttribute(name, value);
  }
  const x = node => 8 + (node.column - first) * wide, y = node => 8 + node.row * high;
  const lines = [];
  for (const node of nodes) {
    for (const source of node.reads) {
      const a = [x(nodes[source]) + box / 2, y(nodes[source]) + tall], b = [x(node) + box / 2, y(node)];
      lines.push(`M${a}C${a[0]},${a[1] + 14} ${b[0]},${b[1] - 14} ${b}`);
    }
  }
  svg("path", { d: lines.join(""), class: "edge" }, element);
  const most = Math.max(...nodes.map(node => node.share), 1e-9);
  nodes.forEach((node, k) => {
    const group = svg("g", { class: "node", transform: `translate(${x(node)},${y(node)})` });
    const fill = `hsl(${hue.get(node.kernel)} 60% 50% / ${(0.08 + (0.62 * node.share) / most).toFixed(3)})`;
    svg("rect", { width: box, height: tall, rx: 5, fill }, group);
    svg("title", {}, group, node.node);
    svg("text", { x: 8, y: 12 }, group, shortName(node.node));
    svg("text", { x: 8, y: 25, class: "tick" }, group, `${node.kernel || ""}  ${(100 * node.share).toFixed(1)} %`);
    element.appendChild(show(group, k));
  });
}

function drawHead() {
  document.getElementById("title").textContent = profile.file;
  const peak = profile.peak, threads = `${profile.threads} thread${profile.threads > 1 ? "s" : ""}`;
  const limits = peak ? `; peak ${peak.gflops.toFixed(0)} GFLOP/s, ${peak.gbytes.toFixed(1)} GB/s` : "";
  const said = `${timeText(profile.ns)} in ${threads} for ${profile.target}, ${nodes.length} nodes`;
  document.getElementById("summary").textContent = `${said}; inputs ${profile.inputs}${limits}`;
}

drawHead();
drawTimeline();
drawLegend();
drawRoofline();
drawTable();
drawGraph();
document.documentElement.dataset.drawn = performance.now().toFixed(0); // milliseconds since the page was asked for
