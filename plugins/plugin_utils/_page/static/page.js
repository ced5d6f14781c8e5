// The page of ./muster page. All text from nodes and jobs is set with textContent, so it never becomes markup.
"use strict";

const POLL = 2000; // milliseconds between requests for output, and after an error
const WAIT = 50; // before the next request for the state of a run, whose reply waits for news
const CURVES_POLL = 500; // between checks whether there are new curves
const CURVES_SHARE = 20; // how many times longer than reading the curves the pause after it is
const LIST_POLL = 5000; // between two requests for the list of runs
const MAX_LINES = 3000; // of output that the page keeps
const MAX_EVENTS = 500;
const LEVELS = 6; // shades of a strip
const MIN_ROW = 3; // pixels of a row in a strip
const SVG = "http://www.w3.org/2000/svg";

const byId = (id) => document.getElementById(id);
let token = "";
let page = { run: null, generation: 0 };

// - small helpers

function element(name, text, className) {
  const created = document.createElement(name);
  if (text !== undefined) created.textContent = text;
  if (className) created.className = className;
  return created;
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text; // an unchanged text is not read out again
}

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "";
  const total = Math.max(0, Math.floor(seconds)), two = (number) => String(number).padStart(2, "0");
  return `${Math.floor(total / 3600)}:${two(Math.floor(total / 60) % 60)}:${two(total % 60)}`;
}

const clock = (seconds) => (seconds === null ? "" : new Date(seconds * 1000).toLocaleTimeString());
const moment = (seconds) => (seconds === null ? "" : new Date(seconds * 1000).toLocaleString());
const quantity = (value, unit) => (value === null || value === undefined ? "" : `${Math.round(value)} ${unit}`);
const short = (value) => (value === null || value === undefined ? "" : String(Number(value.toPrecision(5))));

function updateRows(body, rows) {
  // Cells are changed in place to preserve the focus and the selection.
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((cells, index) => {
    const row = body.rows[index] || body.insertRow();
    cells.forEach((cell, column) => {
      let target = row.cells[column];
      if (!target) {
        target = element(column ? "td" : "th");
        if (!column) target.scope = "row";
        row.append(target);
      }
      target.className = cell.className || "";
      if (cell.href) {
        let link = target.querySelector("a");
        if (!link) {
          link = element("a");
          target.replaceChildren(link);
        }
        link.href = cell.href;
        setText(link, cell.text);
      } else {
        setText(target, cell.text);
      }
    });
  });
}

async function request(path, options = {}) {
  const reply = await fetch(`/api/${path}`, { ...options, headers: { Authorization: `Bearer ${token}` } });
  const content = await reply.json();
  if (!reply.ok) throw Object.assign(new Error(content.error), { status: reply.status });
  return content;
}

function showFailure(text) {
  setText(byId("failure"), text);
  byId("failure").hidden = !text;
}

function explain(error) {
  return error.status ? error.message : "./muster page does not answer: is it still running in its terminal?";
}

const pause = (milliseconds) => new Promise((resolve) => { setTimeout(resolve, milliseconds); });
const nextFrame = () => new Promise((resolve) => { requestAnimationFrame(resolve); });

function repeat(interval, generation, work) {
  // Poll again an interval after the reply, but not while the page is hidden.
  const next = async () => {
    if (generation !== page.generation) return;
    let pause = document.hidden ? Math.max(interval, POLL) : interval;
    if (!document.hidden) {
      try {
        await work();
        if (generation === page.generation) showFailure("");
      } catch (error) {
        if (generation === page.generation) showFailure(explain(error));
        pause = Math.max(interval, POLL);
      }
    }
    setTimeout(next, pause);
  };
  next();
}

// - pages

function route() {
  const fragment = new URLSearchParams(location.hash.slice(1));
  if (fragment.has("token")) {
    // The token leaves the address, the history and the title; it stays in this tab.
    token = fragment.get("token");
    sessionStorage.setItem("muster-token", token);
    const run = fragment.get("run");
    history.replaceState(null, "", run ? `#run=${encodeURIComponent(run)}` : "#runs");
  } else if (location.hash === "#main") {
    return;
  }
  token = token || sessionStorage.getItem("muster-token") || "";
  const run = new URLSearchParams(location.hash.slice(1)).get("run");
  page = { run, generation: page.generation + 1, lastEvent: 0, seen: "", news: "", version: "", next: 0, rank: 0, finding: "" };
  byId("runs-page").hidden = run !== null;
  byId("run-page").hidden = run === null;
  setText(byId("connection"), "");
  if (run === null) openRuns();
  else openRun(run);
}

function openRuns() {
  document.title = "Runs - muster";
  repeat(LIST_POLL, page.generation, async () => {
    const list = await request("runs");
    setText(byId("runs-directory"), list.directory);
    byId("no-runs").hidden = list.runs.length > 0;
    updateRows(byId("runs"), list.runs.map((run) => [
      { text: run.run_id, href: `#run=${encodeURIComponent(run.run_id)}` },
      { text: run.state, className: stateClass(run.state) },
      { text: moment(run.started) },
      { text: run.ended ? duration(run.ended - run.started) : run.state === "open" ? duration(list.now - run.started) : "" },
      { text: String(run.nodes) },
      { text: run.job, className: "long" },
      { text: run.reason + (run.report ? ` report: ${run.report}` : ""), className: "long" },
    ]));
  });
}

function openRun(run) {
  for (const id of ["output", "events", "metrics", "strips", "matches", "findings", "nodes", "facts"]) byId(id).replaceChildren();
  for (const id of ["command-error", "search-state", "output-error", "state", "message", "job"]) setText(byId(id), "");
  byId("command").hidden = true;
  byId("rank").value = "0";
  byId("strip-node").replaceChildren(new Option("all nodes", ""));
  document.title = `${run} - muster`;
  setText(byId("run-title"), `Run ${run}`);
  const path = `runs/${encodeURIComponent(run)}`;
  repeat(WAIT, page.generation, async () => showRun(await request(`${path}?events=${page.lastEvent}${page.seen}`)));
  repeat(POLL, page.generation, () => readOutput(path));
  repeat(CURVES_POLL, page.generation, async () => {
    if (page.news === page.version && page.shownNode === byId("strip-node").value) return;
    const start = performance.now();
    await readCurves(path);
    await pause(Math.max(0, CURVES_SHARE * (performance.now() - start) - CURVES_POLL));
  });
}

function stateClass(state) {
  if (state === "succeeded") return "good";
  return ["failed", "died", "lost", "interrupted"].includes(state) ? "problem" : "";
}

// - a run

function showRun(run) {
  if (run.run_id !== page.run) return;
  page.seen = `&seen=${run.seen}`;
  page.news = run.version;
  setText(byId("job"), run.job);
  setText(byId("state"), run.state);
  byId("state").className = stateClass(run.state);
  setText(byId("message"), run.message);
  document.title = `${run.state}: ${run.run_id} - muster`;
  const { node, state, text } = run.connection;
  setText(byId("connection"), state === "connected" ? `connected to ${node}` : `${state}${node ? ` ${node}` : ""}${text ? `: ${text}` : ""}`);
  showFacts([
    ["started", run.started === null ? "" : moment(run.started)],
    ["time", duration(run.seconds)],
    ["attempt", run.attempt ? `${run.attempt}${run.lost ? ` (${run.lost} lost so far)` : ""}` : ""],
    ["cost so far", run.cost],
    ["last output", run.seconds_since_output === null ? "" : `${duration(run.seconds_since_output)} ago`],
  ]);
  showFindings(run.findings);
  updateRows(byId("nodes"), run.nodes.map((item) => [
    { text: item.name },
    { text: item.ranks },
    { text: item.state, className: stateClass(item.state) },
    { text: item.since === null ? "" : clock(item.since) },
    { text: quantity(item.utilization, "%"), className: "n" },
    { text: quantity(item.gpu_memory, "%"), className: "n" },
    { text: quantity(item.power, "W"), className: "n" },
    { text: quantity(item.memory, "%"), className: "n" },
    { text: quantity(item.disk, "%"), className: "n" },
  ]));
  const select = byId("strip-node");
  if (select.options.length !== run.nodes.length + 1) {
    const chosen = select.value;
    select.replaceChildren(new Option("all nodes", ""), ...run.nodes.map((item) => new Option(`GPUs of ${item.name}`, item.name)));
    select.value = chosen;
  }
  byId("rank").max = String(Math.max(0, ...run.nodes.map((item) => item.first_rank + item.slots - 1)));
  showEvents(run.events);
  page.lastEvent = run.last_event;
  showCommand(run.command);
  for (const button of document.querySelectorAll("[data-command]")) button.disabled = !run.active;
}

function showFacts(pairs) {
  const facts = pairs.filter(([, value]) => value), list = byId("facts");
  if (list.children.length !== 2 * facts.length) {
    list.replaceChildren(...facts.flatMap(() => [element("dt"), element("dd")]));
  }
  facts.forEach(([name, value], index) => {
    setText(list.children[2 * index], name);
    setText(list.children[2 * index + 1], value);
  });
}

function showFindings(findings) {
  byId("findings-section").hidden = !findings.length;
  const text = JSON.stringify(findings);
  if (text === page.finding) return;
  page.finding = text;
  byId("findings").replaceChildren(...findings.map((finding) => element("li", finding.text)));
}

function showEvents(events) {
  const list = byId("events");
  for (const event of events) {
    const item = element("li"), time = element("time", event.time === null ? "" : clock(event.time));
    item.append(time, element("span", event.text));
    list.prepend(item);
  }
  while (list.children.length > MAX_EVENTS) list.lastElementChild.remove();
}

function showCommand(command) {
  byId("command").hidden = !command;
  if (!command) return;
  setText(byId("command-title"), command.typed);
  const ended = command.exit_code === 0 ? "done" : `failed with exit code ${command.exit_code}`;
  setText(byId("command-state"), command.exit_code === null ? "running" : ended);
  setText(byId("command-output"), command.lines.join("\n"));
}

// - curves

async function readCurves(path) {
  const node = byId("strip-node").value;
  const version = page.shownNode === node ? page.version : "";
  const curves = await request(`${path}/curves?version=${encodeURIComponent(version)}&node=${encodeURIComponent(node)}`);
  if (!path.endsWith(`/${encodeURIComponent(page.run)}`) || !curves.metrics) return;
  page.version = curves.version;
  page.shownNode = node;
  byId("no-metrics").hidden = curves.metrics.length > 0;
  byId("no-strips").hidden = curves.strips.length > 0;
  page.curves = curves;
  const shades = readShades(), isCurrent = () => page.curves === curves;
  await keepFigures(byId("metrics"), curves.metrics, drawCurve, isCurrent);
  await keepFigures(byId("strips"), curves.strips, (figure, strip) => drawStrip(figure, strip, curves, shades), isCurrent);
}

async function keepFigures(parent, items, draw, isCurrent) {
  // One figure is drawn in each frame, so that the page never stops responding. Newer curves may arrive meanwhile.
  if (!isCurrent()) return;
  const figures = new Map([...parent.children].map((figure) => [figure.dataset.name, figure]));
  const kept = items.map((item) => {
    const figure = figures.get(item.name) || element("figure");
    figure.dataset.name = item.name;
    figures.delete(item.name);
    return figure;
  });
  for (const figure of figures.values()) figure.remove();
  for (const [index, figure] of kept.entries()) {
    draw(figure, items[index]);
    if (parent.children[index] !== figure) parent.insertBefore(figure, parent.children[index] || null);
    await nextFrame();
    if (!isCurrent()) return;
  }
}

function shape(name, attributes) {
  const created = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) created.setAttribute(key, value);
  return created;
}

function drawCurve(figure, curve) {
  const points = curve.points, caption = element("figcaption");
  caption.append(element("h3", curve.name), element("span", `${short(curve.last)} at ${short(curve.step)}`, "soft"));
  figure.replaceChildren(caption);
  if (!points.length) return;
  const lows = points.map((point) => point[1]), highs = points.map((point) => point[3]);
  const low = Math.min(...lows), high = Math.max(...highs), first = points[0][0], last = points[points.length - 1][0];
  const x = (value) => (100 * (value - first)) / (last - first || 1), y = (value) => 48 - (46 * (value - low)) / (high - low || 1);
  const pair = (point, column) => `${x(point[0]).toFixed(2)},${y(point[column]).toFixed(2)}`;
  const svg = shape("svg", { viewBox: "0 0 100 50", preserveAspectRatio: "none", role: "img" });
  svg.setAttribute("aria-label", `${curve.name} from ${short(points[0][2])} to ${short(curve.last)}, minimum ${short(low)}, maximum ${short(high)}`);
  const band = [...points.map((point) => pair(point, 1)), ...[...points].reverse().map((point) => pair(point, 3))].join(" ");
  svg.append(
    shape("polygon", { points: band, class: "range" }),
    shape("polyline", { points: points.map((point) => pair(point, 2)).join(" "), class: "curve" }),
  );
  const axis = element("div", undefined, "axis");
  axis.append(element("span", short(curve.first)), element("span", `${short(low)} to ${short(high)}`), element("span", short(curve.step)));
  figure.append(svg, axis);
}

function readShades() {
  // As pixels of a canvas: red, green, blue and opacity, in this order in memory.
  const style = getComputedStyle(document.documentElement);
  return Array.from({ length: LEVELS }, (_, level) => {
    const color = Number.parseInt(style.getPropertyValue(`--s${level}`).trim().slice(1), 16);
    return new Uint32Array(new Uint8Array([color >> 16, (color >> 8) & 255, color & 255, 255]).buffer)[0];
  });
}

function drawStrip(figure, strip, curves, shades) {
  let most = strip.maximum || 0, columns = 1;
  for (const row of strip.rows) {
    columns = Math.max(columns, row.values.length);
    if (!strip.maximum) for (const value of row.values) if (value > most) most = value;
  }
  most = most || 1;
  const caption = element("figcaption");
  caption.append(element("h3", strip.title), element("span", `${strip.rows.length} rows, 0 to ${Math.round(most)} ${strip.unit}`, "soft"));
  const canvas = figure.querySelector("canvas") || element("canvas");
  const height = Math.max(MIN_ROW, Math.min(18, Math.floor(240 / strip.rows.length)));
  canvas.width = columns;
  canvas.height = strip.rows.length * height;
  canvas.style.height = `${canvas.height}px`;
  canvas.style.imageRendering = "pixelated";
  canvas.setAttribute("role", "img");
  const newest = strip.rows.map((row) => [row.label, row.values[row.values.length - 1]]).filter((pair) => typeof pair[1] === "number");
  const spoken = newest.slice(0, 16).map(([label, value]) => `${label} ${Math.round(value)}`).join(", ");
  canvas.setAttribute("aria-label", `${strip.title} in ${strip.unit} now: ${spoken}${newest.length > 16 ? ", and more" : ""}`);
  const context = canvas.getContext("2d"), image = context.createImageData(canvas.width, canvas.height);
  const pixels = new Uint32Array(image.data.buffer), filled = height > 6 ? height - 1 : height;
  strip.rows.forEach((row, index) => {
    const first = index * height * columns;
    row.values.forEach((value, column) => {
      if (value === null) return; // a gap stays empty
      pixels[first + column] = shades[Math.max(0, Math.min(LEVELS - 1, Math.floor((LEVELS * value) / most)))];
    });
    for (let line = 1; line < filled; line += 1) pixels.copyWithin(first + line * columns, first, first + columns);
  });
  context.putImageData(image, 0, 0);
  canvas.onmousemove = (event) => {
    const box = canvas.getBoundingClientRect(), row = strip.rows[Math.floor((event.clientY - box.top) / height)];
    const value = row && row.values[Math.floor((columns * (event.clientX - box.left)) / box.width)];
    canvas.title = row ? `${row.label}: ${value === null || value === undefined ? "no sample" : `${value} ${strip.unit}`}` : "";
  };
  const axis = element("div", undefined, "axis");
  axis.append(element("span", clock(curves.start)), element("span", clock(curves.start + columns * curves.width)));
  figure.replaceChildren(caption, canvas, axis);
}

// - output

async function readOutput(path) {
  const rank = page.rank, after = page.next;
  const reply = await request(`${path}/output?rank=${rank}&after=${after}`);
  // Another rank was chosen, or the reply to an earlier request has brought these lines.
  if (rank !== page.rank || after !== page.next || !path.endsWith(`/${encodeURIComponent(page.run)}`)) return;
  setText(byId("output-error"), reply.error);
  const output = byId("output");
  if (reply.lines.length || reply.missed) {
    const lines = (page.lines || []).concat(reply.missed && page.next ? ["[lines were left out]"] : [], reply.lines);
    page.lines = lines.slice(-MAX_LINES);
  }
  page.next = reply.next;
  const text = [...(page.lines || []), ...(reply.unfinished ? [reply.unfinished] : [])].join("\n");
  if (output.textContent === text) return;
  output.textContent = text;
  if (byId("follow").checked) output.scrollTop = output.scrollHeight;
}

function chooseRank(rank) {
  page.rank = rank;
  page.next = 0;
  page.lines = [];
  byId("output").textContent = "";
  setText(byId("output-error"), "");
  readOutput(`runs/${encodeURIComponent(page.run)}`).catch((error) => setText(byId("output-error"), explain(error)));
}

async function search(event) {
  event.preventDefault();
  const text = byId("search-text").value.trim(), run = page.run;
  if (!text) return;
  setText(byId("search-state"), "searching ...");
  byId("matches").replaceChildren();
  try {
    const reply = await request(`runs/${encodeURIComponent(run)}/search?text=${encodeURIComponent(text)}`);
    if (run !== page.run) return;
    const missing = reply.missing.length ? `; without ${reply.missing.join(", ")}` : "";
    setText(byId("search-state"), `${reply.matches.length} lines${reply.shortened ? ", and more" : ""}${missing}`);
    byId("matches").replaceChildren(...reply.matches.map((match) => {
      const item = element("li"), button = element("button", `rank ${match.rank}`);
      button.type = "button";
      button.addEventListener("click", () => {
        byId("rank").value = String(match.rank);
        chooseRank(match.rank);
        byId("output").focus();
      });
      item.append(button, element("span", ` ${match.node} ${match.log} `, "soft"), element("code", match.line));
      return item;
    }));
  } catch (error) {
    setText(byId("search-state"), explain(error));
  }
}

// - commands

const QUESTIONS = {
  stop: ["Stop the run?", "This ends all ranks on all nodes. Unsaved work is lost.", "Stop the run"],
};

function pressed(event) {
  const command = event.currentTarget.dataset.command, question = QUESTIONS[command];
  if (!question) {
    start(command);
    return;
  }
  setText(byId("confirm-title"), question[0]);
  setText(byId("confirm-text"), `${page.run}: ${question[1]}`);
  setText(byId("confirm-yes"), question[2]);
  byId("confirm-yes").onclick = () => {
    byId("confirm").close();
    start(command);
  };
  byId("confirm").showModal();
  byId("confirm-no").focus();
}

async function start(command) {
  setText(byId("command-error"), "");
  try {
    await request(`runs/${encodeURIComponent(page.run)}/${command}`, { method: "POST" });
  } catch (error) {
    setText(byId("command-error"), explain(error));
  }
}

document.addEventListener("DOMContentLoaded", () => {
  window.addEventListener("hashchange", route);
  for (const button of document.querySelectorAll("[data-command]")) button.addEventListener("click", pressed);
  byId("confirm-no").addEventListener("click", () => byId("confirm").close());
  byId("rank").addEventListener("change", () => chooseRank(Math.max(0, Math.floor(Number(byId("rank").value)) || 0)));
  byId("strip-node").addEventListener("change", () => readCurves(`runs/${encodeURIComponent(page.run)}`).catch((error) => showFailure(explain(error))));
  byId("search").addEventListener("submit", search);
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    byId("main").focus();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { page.version = ""; });
  route();
});
