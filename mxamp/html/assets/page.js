// Draws the graph and the plots of a page. What there is to draw is in the element "data" (mxamp/html/drawing.py).
(() => {
  "use strict";
  const { drawing, plots } = JSON.parse(document.getElementById("data").textContent);
  const { shapes, arrows, casts, groups, texts } = drawing;
  const { cytoscape, Plot } = libraries;
  const byId = (id) => document.getElementById(id);
  const text = (number) => (number < 0 ? "" : texts[number]);
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const INPUT = "(input)", OUTPUT = "(output)";
  const OPENED_AT_FIRST = 40, MOST_OPEN = 400, MOST_FOUND = 40;

  // ---------------------------------------------------------------- what is where

  const kind = (shape) => (shape.l ? "low" : text(shape.d) === "float32" ? "full" : "other");
  const isEnd = (shape) => text(shape.o) === INPUT || text(shape.o) === OUTPUT;
  groups.forEach((group, number) => {
    group.number = number;
    [group.label, group.parent] = group;
    group.total = group.low = group.full = 0;
    group.groups = [];
    group.shapes = [];
  });
  const top = { groups: [], shapes: [] };
  const around = (number) => (number < 0 ? top : groups[number]);
  groups.forEach((group) => around(group.parent).groups.push(group.number));
  shapes.forEach((shape, number) => {
    around(shape.g).shapes.push(number);
    for (let group = shape.g; group >= 0; group = groups[group].parent) {
      groups[group].total += 1;
      groups[group].low += shape.l;
      groups[group].full += kind(shape) === "full" ? 1 : 0;
    }
  });
  const readers = shapes.map(() => []), read = shapes.map(() => []);
  arrows.forEach(([from, to, cast]) => {
    readers[from].push([to, cast]);
    read[to].push([from, cast]);
  });

  const open = new Set();
  /** The group that stands for a group: the outermost one around it that is folded; -1 where it is open itself. */
  function standIn(number) {
    let found = -1;
    for (let group = number; group >= 0; group = groups[group].parent) if (!open.has(group)) found = group;
    return found;
  }
  const shapeId = (number) => "n" + number, groupId = (number) => "g" + number;
  function shownAs(number) {
    const group = standIn(shapes[number].g);
    return group < 0 ? shapeId(number) : groupId(group);
  }
  const held = (group) => group.groups.length + group.shapes.length;
  /** Open the groups of one level, while what is shown stays readable. */
  function openLevel(most) {
    let shown = shownCount();
    const folded = groups.filter((group) => !open.has(group.number) && standIn(group.number) === group.number);
    let opened = 0;
    for (const group of folded) {
      if (shown + held(group) - 1 > most) continue;
      shown += held(group) - 1;
      open.add(group.number);
      opened += 1;
    }
    return opened;
  }
  function shownCount() {
    let count = top.groups.length + top.shapes.length;
    open.forEach((number) => { if (standIn(number) < 0) count += held(groups[number]) - 1; });
    return count;
  }

  // ---------------------------------------------------------------- the picture

  const colors = { low: "#1f77b4", full: "#d9822b", other: "#8a94a3", end: "#5b6675" };
  const CAST = css("--bad");
  const shortened = (name, most) => (name.length <= most ? name : name.slice(0, most / 2 - 1) + "\u2026" + name.slice(1 - most / 2));
  /** A node's name without what the group around it has in common. */
  function ownName(shape) {
    let name = shape.n;
    const chain = [];
    for (let group = shape.g; group >= 0; group = groups[group].parent) chain.unshift(groups[group].label);
    for (const label of chain) if (name.startsWith(label + "_") || name.startsWith(label + "/")) name = name.slice(label.length + 1);
    return name;
  }
  const width = (lines) => Math.max(70, 16 + 7 * Math.max(...lines.map((line) => line.length)));

  function elements() {
    const found = [];
    groups.forEach((group) => {
      if (group.parent >= 0 && standIn(group.parent) >= 0) return;
      const parent = group.parent >= 0 ? groupId(group.parent) : undefined;
      if (open.has(group.number)) {
        found.push({ data: { id: groupId(group.number), parent, label: group.label, shift: 8 + 6.6 * group.label.length }, classes: "open" });
        return;
      }
      const lines = [shortened(group.label, 34), group.total + " nodes"];
      const low = (100 * group.low) / group.total, full = low + (100 * group.full) / group.total;
      const stops = [0, low, low, full, full, 100].map((stop) => stop.toFixed(2) + "%").join(" ");
      found.push({
        data: { id: groupId(group.number), parent, label: lines.join("\n"), width: width(lines), stops,
                colors: [colors.low, colors.low, colors.full, colors.full, colors.other, colors.other].join(" ") },
        classes: "group",
      });
    });
    shapes.forEach((shape, number) => {
      if (shape.g >= 0 && standIn(shape.g) >= 0) return;
      const parent = shape.g >= 0 ? groupId(shape.g) : undefined;
      const operator = isEnd(shape) ? text(shape.o).slice(1, -1) : text(shape.o);
      const lines = [shortened(ownName(shape), 34), operator + (text(shape.d) ? ", " + text(shape.d) : "")];
      found.push({
        data: { id: shapeId(number), parent, label: lines.join("\n"), width: width(lines),
                color: isEnd(shape) ? colors.end : colors[kind(shape)] },
        classes: isEnd(shape) ? "end" : "operator",
      });
    });
    const joined = new Map();
    arrows.forEach(([from, to, cast]) => {
      const source = shownAs(from), target = shownAs(to);
      if (source === target) return;
      const key = source + ">" + target;
      const arrow = joined.get(key) || { source, target, casts: new Set(), values: 0 };
      arrow.values += 1;
      if (cast >= 0) arrow.casts.add(cast);
      joined.set(key, arrow);
    });
    const named = new Set();
    joined.forEach((arrow, key) => {
      const own = [...arrow.casts];
      // One cast serves several readers: its name stands on the first arrow.
      const known = own.length > 0 && own.every((cast) => named.has(cast));
      own.forEach((cast) => named.add(cast));
      const label = known ? "" : own.length === 1 ? short(text(casts[own[0]][1])) + " \u2192 " + short(text(casts[own[0]][2])) : own.length ? own.length + " casts" : "";
      found.push({ data: { id: key, source: arrow.source, target: arrow.target, label, casts: own, values: arrow.values },
                   classes: own.length ? "cast" : "" });
    });
    return found;
  }
  const short = (dtype) => ({ float32: "FP32", bfloat16: "BF16", float16: "FP16" }[dtype] || dtype || "?");

  const style = [
    { selector: "node", style: { label: "data(label)", "text-wrap": "wrap", "text-valign": "center", "font-size": 12,
      "font-family": "system-ui, sans-serif", color: "#fff", shape: "round-rectangle", height: 40, "line-height": 1.25,
      "overlay-opacity": 0, "text-outline-opacity": 0 } },
    { selector: ".operator, .end", style: { width: "data(width)", "background-color": "data(color)" } },
    { selector: ".end", style: { shape: "cut-rectangle" } },
    { selector: ".group", style: { width: "data(width)", "background-fill": "linear-gradient", "background-gradient-direction": "to-right",
      "background-gradient-stop-colors": "data(colors)", "background-gradient-stop-positions": "data(stops)",
      "border-width": 5, "border-style": "double", "border-color": "#46525f", "text-outline-width": 2, "text-outline-opacity": 0.35, "text-outline-color": "#000" } },
    { selector: ".open", style: { "background-opacity": 0.07, "background-color": "#7f8c9b", "border-width": 1, "border-color": "#8a94a3",
      "text-valign": "top", "text-halign": "left", "text-margin-x": "data(shift)", "text-margin-y": -2, color: "#7d8896", padding: 14, "text-background-opacity": 0.85, "text-background-padding": 2 } },
    { selector: "edge", style: { width: 1.6, "line-color": "#9aa6b5", "target-arrow-color": "#9aa6b5", "target-arrow-shape": "triangle",
      "curve-style": "bezier", "arrow-scale": 0.9, "overlay-opacity": 0, "z-compound-depth": "bottom" } },
    { selector: ".cast", style: { "line-color": CAST, "target-arrow-color": CAST, "line-style": "dashed", width: 2.4, "source-label": "data(label)", "source-text-offset": 13,
      "font-size": 10, color: CAST, "text-background-opacity": 0.9, "text-background-padding": 2,
      "font-family": "system-ui, sans-serif" } },
    { selector: ".led", style: { "curve-style": "round-segments", "segment-radii": 14, "edge-distances": "node-position",
      "segment-weights": (edge) => edge.scratch("weights"), "segment-distances": (edge) => edge.scratch("distances") } },
    { selector: ".chosen", style: { "border-width": 4, "border-color": "#f4c20d", "border-style": "solid", "border-opacity": 1 } },
    { selector: "edge.chosen", style: { width: 4, "line-color": "#f4c20d", "target-arrow-color": "#f4c20d" } },
  ];
  const cy = cytoscape({ container: byId("picture"), style, minZoom: 0.02, maxZoom: 2.5, userZoomingEnabled: true,
                         autoungrabify: true, boxSelectionEnabled: false });
  /** Let labels stand on what is behind them: the page, or paper. */
  const labelsOn = (color) => cy.style().selector(".cast, .open").style("text-background-color", color).update();
  labelsOn(css("--panel"));
  // The wheel scrolls the page; with Ctrl or Command, or two fingers, it zooms.
  byId("picture").addEventListener("wheel", (event) => { if (!event.ctrlKey && !event.metaKey) event.stopPropagation(); }, { capture: true });

  /** Lead arrows that would run over nodes past them, down the nearest column that is free. */
  function leadPast() {
    const boxes = cy.nodes().filter((node) => !node.isParent()).map((node) => ({ id: node.id(), ...node.boundingBox({ includeLabels: false }) }));
    const columns = [];
    cy.edges().forEach((edge) => {
      const a = edge.source().position(), b = edge.target().position(), ends = [edge.source().id(), edge.target().id()];
      if (b.y <= a.y) return;
      const between = boxes.filter((box) => !ends.includes(box.id) && box.y1 > a.y && box.y2 < b.y);
      const at = (y) => a.x + ((b.x - a.x) * (y - a.y)) / (b.y - a.y);
      const crossed = (box) => Math.max(at(box.y1), at(box.y2)) > box.x1 - 5 && Math.min(at(box.y1), at(box.y2)) < box.x2 + 5;
      if (!between.some(crossed)) return;
      const first = Math.min(...between.map((box) => box.y1)) - 10, last = Math.max(...between.map((box) => box.y2)) + 10;
      const taken = [...between, ...columns.filter((column) => column.y1 < last && column.y2 > first)];
      const free = taken.flatMap((box) => [box.x1 - 12, box.x2 + 12]).filter((x) => taken.every((box) => x < box.x1 - 9 || x > box.x2 + 9));
      const x = free.reduce((best, other) => (Math.abs(other - (a.x + b.x) / 2) < Math.abs(best - (a.x + b.x) / 2) ? other : best));
      columns.push({ x1: x, x2: x, y1: first, y2: last });
      const across = b.x - a.x, down = b.y - a.y, square = across * across + down * down;
      const corners = [first, last].map((y) => [x - a.x, y - a.y]);
      edge.scratch("weights", corners.map(([right, below]) => (right * across + below * down) / square));
      edge.scratch("distances", corners.map(([right, below]) => (below * across - right * down) / Math.sqrt(square)));
      edge.addClass("led");
    });
  }

  function render(focus) {
    cy.batch(() => {
      cy.elements().remove();
      cy.add(elements());
    });
    cy.layout({ name: "dagre", rankDir: "TB", nodeSep: 24, rankSep: 38, edgeSep: 12, animate: false, fit: false }).run();
    leadPast();
    choose(chosen);
    if (focus) show(focus);
    else begin();
  }
  /** Show the beginning of the graph, as wide as fits; all of it where that is readable. */
  function begin() {
    cy.fit(undefined, 24);
    if (cy.zoom() > 1.1) cy.zoom(1.1), cy.center();
    if (cy.zoom() >= 0.55) return;
    const first = cy.nodes().filter((node) => !node.isParent());
    if (!first.length) return;
    const ends = first.sort((a, b) => a.position("y") - b.position("y"));
    cy.zoom(Math.min(1, Math.max(0.55, (cy.width() - 40) / Math.min(900, cy.elements().boundingBox().w))));
    const box = ends[0].boundingBox();
    cy.pan({ x: cy.width() / 2 - ((box.x1 + box.x2) / 2) * cy.zoom(), y: 30 - box.y1 * cy.zoom() });
  }
  function show(id) {
    const node = cy.getElementById(id);
    if (!node.length) return;
    if (cy.zoom() < 0.6) cy.zoom(0.9);
    cy.center(node);
    // Of what is taller than the picture, the beginning.
    const top = node.renderedBoundingBox().y1;
    if (top < 10) cy.panBy({ x: 0, y: 30 - top });
  }
  let chosen = null;
  function choose(id) {
    cy.elements(".chosen").removeClass("chosen");
    chosen = id;
    if (id) cy.getElementById(id).addClass("chosen");
  }
  function unfoldTo(group) {
    for (let number = group; number >= 0; number = groups[number].parent) open.add(number);
  }
  function goTo(number) {
    unfoldTo(shapes[number].g);
    chosen = shapeId(number);
    render(chosen);
    tellShape(number);
  }

  // ---------------------------------------------------------------- what is said of it

  const details = byId("details");
  function element(tag, content, attributes) {
    const made = document.createElement(tag);
    if (content !== undefined) made.textContent = content;
    Object.assign(made, attributes || {});
    return made;
  }
  function told(title, pairs) {
    details.replaceChildren(element("h3", title));
    const list = element("dl");
    for (const [name, value] of pairs) {
      if (value === "" || value === undefined || value === null) continue;
      list.append(element("dt", name));
      const cell = element("dd");
      if (value instanceof Node) cell.append(value);
      else cell.textContent = value;
      list.append(cell);
    }
    details.append(list);
  }
  function links(pairs) {
    const most = 12, all = element("span");
    pairs.slice(0, most).forEach(([number, cast], place) => {
      if (place) all.append(", ");
      const link = element("a", shapes[number].n, { href: "#graph" });
      link.addEventListener("click", (event) => { event.preventDefault(); goTo(number); });
      all.append(link);
      if (cast >= 0) all.append(" (" + short(text(casts[cast][1])) + " \u2192 " + short(text(casts[cast][2])) + ")");
    });
    if (pairs.length > most) all.append(" and " + (pairs.length - most) + " more");
    return pairs.length ? all : "";
  }
  function tellShape(number) {
    const shape = shapes[number];
    const sums = shape.a === undefined ? "" : ", sums carried in " + text(shape.a);
    const time = shape.t && Math.round(shape.t[0]) + " \u00b5s in FP32, " + Math.round(shape.t[1]) + " \u00b5s here" +
      (shape.t[2] ? ", casts of it " + Math.round(shape.t[2]) + " \u00b5s" : "") + (shape.t[3] ? " (measured)" : " (estimated)");
    told(shape.n, [
      ["Operator", isEnd(shape) ? "" : text(shape.o)],
      [isEnd(shape) ? "Dtype" : "Computes in", (text(shape.d) || "known at run time") + sums],
      ["Why", shape.w === undefined ? (isEnd(shape) ? "" : "not recorded: give the files' provenance, PREFIX-mxamp.json") : text(shape.w)],
      ["Rule", shape.r === undefined ? "" : text(shape.r) + " (" + text(shape.c) + ")"],
      ["Relative L2 error of its output", shape.e === undefined ? "" : String(shape.e)],
      ["Time", time || ""],
      ["Holds what was", (shape.h || []).join(", ")],
      ["Reads", links(read[number])],
      ["Read by", links(readers[number])],
    ]);
  }
  function tellGroup(number) {
    const group = groups[number];
    const other = group.total - group.low - group.full;
    told(group.label, [
      ["Nodes", String(group.total)],
      ["Computing in", [group.low + " low", group.full + " FP32", other ? other + " other" : ""].filter(Boolean).join(", ")],
    ]);
    const button = element("button", open.has(number) ? "Fold this group" : "Open this group", { type: "button" });
    button.addEventListener("click", () => toggle(number));
    details.append(button);
  }
  function tellArrow(edge) {
    const own = edge.data("casts");
    told(own.length ? own.length + (own.length === 1 ? " cast" : " casts") : "No cast", [
      ["Values", String(edge.data("values"))],
      ...own.slice(0, 12).map((number) => [short(text(casts[number][1])) + " \u2192 " + short(text(casts[number][2])), casts[number][0]]),
      ...(own.length > 12 ? [["and", own.length - 12 + " more"]] : []),
    ]);
  }
  function toggle(number) {
    if (open.has(number)) open.delete(number);
    else open.add(number);
    chosen = groupId(number);
    render(chosen);
    tellGroup(number);
  }
  cy.on("tap", "node", (event) => {
    const id = event.target.id(), number = Number(id.slice(1));
    if (id[0] === "n") {
      choose(id);
      tellShape(number);
    } else if (open.has(number)) {
      choose(id);
      tellGroup(number);
    } else toggle(number);
  });
  cy.on("tap", "edge", (event) => { choose(event.target.id()); tellArrow(event.target); });
  byId("fold").addEventListener("click", () => { open.clear(); chosen = null; render(); });
  byId("unfold").addEventListener("click", () => {
    if (!openLevel(MOST_OPEN)) told("All that fits is open", [["", "Click a group to open it; fold others first."]]);
    render();
  });
  const zoomBy = (factor) => cy.zoom({ level: cy.zoom() * factor, renderedPosition: { x: cy.width() / 2, y: cy.height() / 2 } });
  byId("closer").addEventListener("click", () => zoomBy(1.4));
  byId("further").addEventListener("click", () => zoomBy(1 / 1.4));
  byId("fit").addEventListener("click", () => cy.fit(undefined, 20));

  // ---------------------------------------------------------------- search

  const search = byId("search"), found = byId("found");
  let marked = 0;
  function look() {
    const wanted = search.value.trim().toLowerCase();
    const fits = [];
    for (let number = 0; wanted && number < shapes.length && fits.length < 4 * MOST_FOUND; number += 1) {
      const name = shapes[number].n.toLowerCase();
      if (name === wanted) fits.unshift(number);
      else if (name.includes(wanted) || text(shapes[number].o).toLowerCase().includes(wanted)) fits.push(number);
    }
    marked = 0;
    found.replaceChildren(...fits.slice(0, MOST_FOUND).map((number, place) => {
      const item = element("li", shapes[number].n + " ", { role: "option" });
      item.setAttribute("role", "option");
      item.setAttribute("aria-selected", String(place === 0));
      item.dataset.node = number;
      item.append(element("small", text(shapes[number].o) + " " + text(shapes[number].d)));
      item.addEventListener("pointerdown", (event) => { event.preventDefault(); pick(number); });
      return item;
    }));
    if (wanted && !fits.length) found.replaceChildren(element("li", "No node or operator has this in its name."));
    found.hidden = !wanted;
    search.setAttribute("aria-expanded", String(!found.hidden));
  }
  function pick(number) {
    found.hidden = true;
    search.setAttribute("aria-expanded", "false");
    goTo(number);
  }
  search.addEventListener("input", look);
  search.addEventListener("focus", look);
  search.addEventListener("blur", () => { found.hidden = true; });
  search.addEventListener("keydown", (event) => {
    const items = [...found.children];
    if (event.key === "Escape") found.hidden = true;
    if (event.key === "Enter" && items[marked] && items[marked].dataset.node) pick(Number(items[marked].dataset.node));
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    event.preventDefault();
    marked = Math.max(0, Math.min(items.length - 1, marked + (event.key === "ArrowDown" ? 1 : -1)));
    items.forEach((item, place) => item.setAttribute("aria-selected", String(place === marked)));
    if (items[marked]) items[marked].scrollIntoView({ block: "nearest" });
  });

  // ---------------------------------------------------------------- plots

  const kindColors = { float32: "var(--full)", bfloat16: "var(--low)", float16: "var(--low)", "this model": "var(--low)", "without tuning": "var(--full)" };
  /** Draw the plot of a place, as wide as the place is. */
  function plotted(place, printed) {
    const given = plots[Number(place.dataset.plot)];
    // What is far below float32's own rounding is as good as equal.
    const floor = Math.max(Math.min(...given.points.map((point) => point[1]).filter((value) => value > 0), given.limit || 1) / 2, 1e-8);
    const drawn = (value) => (given.log ? Math.max(value, floor) : value);
    const data = given.points.map(([x, y, label, kind, bounds, name]) => ({ x, y: drawn(y), exact: y, label, kind, bounds: bounds && bounds.map(drawn), name }));
    const kinds = [...new Set(data.map((point) => point.kind))];
    const color = (point) => kindColors[point.kind] || "var(--other)";
    const marks = [];
    if (given.limit) {
      marks.push(Plot.ruleY([given.limit], { stroke: "var(--bad)", strokeDasharray: "4 3" }));
      marks.push(Plot.text([given.limit], { y: (value) => value, text: (value) => "limit " + value, frameAnchor: "right", textAnchor: "end", dy: 9, fill: "var(--bad)" }));
    }
    if (given.line) marks.push(Plot.lineY(data, { x: "x", y: "y", stroke: "var(--other)" }));
    const bars = data.flatMap((point, bar) => (point.bounds || []).map((end) => ({ ...point, y: end, bar })));
    marks.push(Plot.lineY(bars, { x: "x", y: "y", z: "bar", stroke: color, strokeWidth: 1.5 }));
    marks.push(Plot.dot(data, { x: "x", y: "y", fill: color, r: given.line ? 5 : 3 }));
    // Within the plot: to the left of points in its right half.
    const ends = data.map((point) => point.x), half = (Math.min(...ends) + Math.max(...ends)) / 2;
    const beside = (point) => (point.x > half ? { dx: -6, textAnchor: "end" } : { dx: 6, textAnchor: "start" });
    // Of two names one stands above its point, and the other below.
    data.filter((point) => point.name).forEach((point, number) =>
      marks.push(Plot.text([point], { x: "x", y: "y", text: "name", dy: number ? 14 : -12, ...beside(point), fill: "currentColor", stroke: "var(--back)", strokeWidth: 4 })));
    marks.push(Plot.tip(data, Plot.pointer({ x: "x", y: "y", fill: "var(--back)",
      title: (point) => point.label + "\n" + (point.exact === 0 ? "exactly equal" : given.y + " " + point.exact.toPrecision(3)) + (point.kind ? "\n" + point.kind : "") })));
    const wide = printed ? PRINTED : place.clientWidth || 700;
    const figure = Plot.plot({ width: wide, height: Math.max(240, Math.min(340, wide * 0.5)), marginLeft: 70, marginRight: 24, marginBottom: 46,
      x: { label: given.x, labelAnchor: "center", labelArrow: "none", labelOffset: 40, ...(given.line ? { inset: 40 } : {}) },
      y: { label: given.y, type: given.log ? "log" : "linear", grid: true, tickFormat: given.log ? "~g" : undefined },
      style: { fontSize: "12px", background: "none" }, marks });
    figure.setAttribute("role", "img");
    figure.setAttribute("aria-label", given.y + " over " + given.x);
    place.replaceChildren(figure);
    if (kinds.length > 1) {
      const legend = element("p", undefined, { className: "legend" });
      kinds.forEach((kind) => {
        const key = element("span", undefined, { className: "key" });
        key.style.background = kindColors[kind] || "var(--other)";
        legend.append(key, " " + (kind || "?") + " ");
      });
      place.append(legend);
    }
    figure.addEventListener("click", () => {
      const point = figure.value;
      const number = point ? shapes.findIndex((shape) => shape.n === point.label || (shape.h || []).includes(point.label)) : -1;
      if (number >= 0) {
        goTo(number);
        byId("graph").scrollIntoView({ behavior: "smooth" });
      }
    });
  }
  const places = document.querySelectorAll("[data-plot]:not([data-plot='-1'])");
  const PRINTED = 660; // a page, in pixels
  const drawPlots = (printed) => places.forEach((place) => plotted(place, printed));

  // ---------------------------------------------------------------- begin, and be printed

  while (shownCount() < OPENED_AT_FIRST && openLevel(OPENED_AT_FIRST));
  render();
  drawPlots();
  let wide = window.innerWidth, timer = 0;
  window.addEventListener("resize", () => {
    clearTimeout(timer);
    timer = setTimeout(() => { if (wide !== window.innerWidth) { wide = window.innerWidth; cy.resize(); drawPlots(); } }, 150);
  });
  /** Draw what is printed: the graph as it is shown, or folded where that is too long for a page. */
  function forPrint() {
    drawPlots(true);
    const before = [...open], view = { zoom: cy.zoom(), pan: { ...cy.pan() } };
    const size = cy.elements().boundingBox();
    if (size.h > 1.5 * Math.max(size.w, 700)) {
      open.clear();
      render();
    }
    labelsOn("#fff");
    byId("printed").src = cy.png({ full: true, bg: "#ffffff", maxWidth: 2400, maxHeight: 3000, scale: 2 });
    labelsOn(css("--panel"));
    if (open.size === before.length) return;
    before.forEach((group) => open.add(group));
    render();
    cy.viewport(view);
  }
  window.addEventListener("beforeprint", forPrint);
  window.addEventListener("afterprint", () => drawPlots());
  const media = window.matchMedia("print");
  if (media.addEventListener) media.addEventListener("change", (event) => (event.matches ? forPrint() : drawPlots()));
  document.documentElement.dataset.ready = String(Math.round(performance.now()));
  // For tests, and for the curious.
  window.mxampPage = { cy, goTo, shown: shownCount, open, find: (name) => shapes.findIndex((shape) => shape.n === name), toggle };
})();
