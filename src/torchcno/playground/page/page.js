"use strict";
/* The page: it watches the person, asks the engine, and paints what comes back. */

const setup = JSON.parse(document.getElementById("setup").textContent);
const $ = (id) => document.getElementById(id);
const MODELS = { cno: "CNO", fno: "FNO", unet: "U-Net", resnet: "ResNet", deeponet: "DeepONet",
                 ffnn: "FFNN", "galerkin-transformer": "Galerkin transformer" };
const FAST = 60; // ms: a solver that answers within it follows every movement
const REST = 200; // ms of rest after which slow ones are asked

const values = Object.fromEntries(setup.constants.map((c) => [c.name, c.trained]));
const drawing = new DRAWINGS[setup.kind](setup, () => values);
const state = {
  resolution: setup.resolution, shift: 0, seed: 0, channel: 0,
  version: 0, // of what is drawn
  answered: null, truth: null, doubt: null, // {version, fields, words}
  solverTime: Infinity, dragging: false, moved: null, // when the person last moved something
};
const times = []; // ms from a movement to the networks' pictures
const dark = matchMedia("(prefers-color-scheme: dark)");
let colours = makeColours(dark.matches);
dark.addEventListener("change", () => { colours = makeColours(dark.matches); show(); });

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/* ---- the frame ---- */

function modelName(network) {
  const known = MODELS[network.model] || network.model;
  return network.name.replace(network.model, known);
}

function panel(id, title, row, column) {
  const bar = make("div", { className: "bar" }, make("canvas"), make("span"), make("span"));
  const figure = make("figure", { className: "card panel", id },
    make("figcaption", {}, make("b", { textContent: title }), make("output")),
    make("div", { className: "picture" }, make("canvas"), make("p", { hidden: true })), bar);
  figure.style.gridArea = `${row} / ${column}`;
  return figure;
}

function buildAnswers() {
  const host = $("answers");
  const many = setup.networks.length > 1;
  document.body.classList.toggle("many", many);
  document.body.classList.toggle("alone", !many && !setup.truth);
  host.style.setProperty("--columns", setup.networks.length + (setup.truth ? 1 : 0));
  const first = setup.truth && many ? 2 : 1;
  setup.networks.forEach((network, i) => {
    const name = modelName(network);
    const column = first + i;
    host.append(panel(`answer-${i}`, many ? name : `${name} answers`, 1, column));
    if (setup.truth) host.append(panel(`error-${i}`, "Error", 2, column));
    if (network.doubt) host.append(panel(`doubt-${i}`, "Doubt", many ? 3 : 2, many ? column : 2));
  });
  if (setup.truth) host.append(panel("truth", "Solver: the truth", 1, many ? 1 : 2));
  if (setup.truth && many) { // where the truth's column is empty
    host.append($("legend"));
    $("legend").style.gridArea = "2 / 1 / span 2";
  }
  host.style.setProperty("--parts", 1 + setup.truth + setup.doubt);
}

function buildLegend() {
  const host = $("legend");
  const say = (name, words) => host.append(make("p", {}, make("b", { textContent: name }), ` ${words}`));
  const size = (n) => (n >= 1e6 ? `${(n / 1e6).toFixed(1)} million` : n.toLocaleString("en"));
  for (const network of setup.networks) {
    const bound = network.bound === null ? ""
      : ` For inputs like its training's, nine of ten errors are below ${percent(network.bound)}.`;
    say(modelName(network), `is a trained network of ${size(network.parameters)} weights.${bound}`);
  }
  if (setup.truth) {
    say("Solver", "computes the truth from the equation.");
    say("Error", "is the distance from an answer to the truth, in percent of the truth.");
  } else {
    say("No truth", "is known: these data came without a solver.");
  }
  const doubts = setup.networks.map((network) => network.doubt);
  const said = [];
  if (doubts.includes("symmetry")) {
    said.push("is how much the answer changes when the input is mirrored or turned. The truth only turns with it.");
  }
  if (doubts.includes("members")) said.push("of an ensemble is how far its members are apart.");
  if (said.length) say("Doubt", `${said.join(" That ")} Large doubt is a warning; small doubt is no proof.`);
}

/** The other problems: each has a page of its own. */
function buildProblems() {
  const known = Object.entries(setup.problems || {});
  for (const [name, title] of known) {
    $("problem").append(make("option", { value: name, textContent: title, selected: name === setup.problem }));
  }
  $("problems").hidden = known.length < 2;
  $("problem").addEventListener("change", () => {
    const [, token] = location.pathname.split("/");
    say(`${setup.problems[$("problem").value]} is being opened …`);
    location.assign(`/${token}/${encodeURIComponent($("problem").value)}/`);
  });
  // Who comes back finds the page as it was left, and the choice with it.
  addEventListener("pageshow", () => { $("problem").value = setup.problem; });
}

function slider(options) {
  const { name, label, low, high, step, value, ticks, change } = options;
  const shown = make("output", { textContent: options.format(value) });
  const input = make("input", { type: "range", min: low, max: high, step, value, id: `slide-${name}` });
  const wrap = make("div", { className: "track" }, input);
  for (const tick of ticks || []) {
    const mark = make("i", { title: tick.title, className: tick.kind });
    mark.style.left = `${(100 * (tick.value - low)) / (high - low)}%`;
    wrap.append(mark);
  }
  input.addEventListener("input", () => {
    shown.textContent = options.format(+input.value);
    change(+input.value);
  });
  const set = (v) => { input.value = v; shown.textContent = options.format(v); };
  const row = make("label", { className: "slider" }, make("span", { textContent: label }), shown, wrap);
  return { row, set };
}

const sliders = [];

function addSlider(host, options) {
  const made = slider(options);
  sliders.push({ ...made, value: options.value, options });
  host.append(made.row);
  return made;
}

function buildSliders() {
  const host = $("sliders");
  const trained = (value) => [{ value, title: "as in training", kind: "trained" }];
  const at = setup.resolutions.indexOf(setup.resolution);
  addSlider(host, {
    name: "resolution", label: "Grid", low: 0, high: setup.resolutions.length - 1, step: 1, value: at,
    ticks: trained(at), format: (i) => (setup.square ? `${setup.resolutions[i]}²` : `${setup.resolutions[i]} points`),
    change: (i) => { state.resolution = setup.resolutions[i]; changed(); },
  });
  addSlider(host, {
    name: "shift", label: "Shift to the right, in grid steps", low: -1, high: 1, step: 0.05, value: 0,
    format: (v) => (+v.toFixed(2)).toString().replace("-", "−"),
    change: (v) => { state.shift = v; changed(); },
  });
  for (const constant of setup.constants) {
    const { name, low, high, whole } = constant;
    const ticks = trained(constant.trained);
    if (constant.ood !== null) {
      ticks.push({ value: constant.ood, title: "the paper's harder test", kind: "ood" });
    }
    addSlider(host, {
      name, label: capital(constant.help), low, high, step: whole ? 1 : "any", value: constant.trained,
      ticks, format: (v) => String(+v.toPrecision(3)),
      change: (v) => { values[name] = whole ? Math.round(v) : v; constantChanged(); },
    });
  }
  const mark = (kind) => make("i", { className: kind });
  const legend = make("p", { className: "legend" }, mark("trained"), "as in training");
  if (setup.constants.some((c) => c.ood !== null)) legend.append(mark("ood"), "the paper's harder test");
  host.append(legend);
}

const capital = (words) => words[0].toUpperCase() + words.slice(1);

function constantChanged() {
  // A shape of another number of bumps is another shape.
  if (setup.kind === "bumps") deal(state.seed);
  else changed();
}

function segmented(name, label, choices, chosen, pick) {
  const group = make("div", { className: "segmented", role: "radiogroup", ariaLabel: label });
  for (const [value, words] of choices) {
    const input = make("input", { type: "radio", name, value, id: `${name}-${value}`,
                                  checked: value === chosen });
    input.addEventListener("change", () => pick(value));
    group.append(make("label", {}, input, make("span", { textContent: words })));
  }
  return group;
}

function button(id, words, act) {
  const element = make("button", { type: "button", id, textContent: words });
  element.addEventListener("click", () => attempt(act));
  return element;
}

function buildTools() {
  const host = $("tools");
  const actions = make("div", { className: "actions" },
    ...(setup.truth ? [button("new", "New example", () => deal(state.seed + 1))] : []),
    button("clear", "Clear", () => { drawing.clear(); changed(); }),
    button("reset", "Start over", startOver));
  if (setup.kind === "spots") {
    const { brush } = drawing;
    const pens = setup.materials
      ? [["plus", `Paint ${setup.materials[1]}`], ["minus", `Paint ${setup.materials[0]}`], ["erase", "Erase"]]
      : [["plus", "Paint +"], ["minus", "Paint −"], ["erase", "Erase"]];
    const choices = make("div", { className: "row" }, segmented("pen", "Pen", pens, "plus",
      (pen) => { brush.erase = pen === "erase"; brush.sign = pen === "minus" ? -1 : 1; }));
    const sizes = make("div", { className: "row two" });
    addSlider(sizes, { name: "width", label: "Brush width", low: 0.015, high: 0.2, step: 0.005,
      value: brush.width, format: (v) => v.toFixed(3), change: (v) => { brush.width = v; } });
    if (!setup.materials) {
      choices.append(segmented("brush", "Brush", [["ring", "Ring"], ["blob", "Blob"]],
        brush.ring ? "ring" : "blob", (kind) => { brush.ring = kind === "ring"; }));
      addSlider(sizes, { name: "height", label: "Strength", low: 0.05, high: 3, step: 0.05,
        value: brush.height, format: (v) => String(+v.toFixed(2)), change: (v) => { brush.height = v; } });
    }
    host.append(choices, sizes);
  }
  if (setup.kind === "disks") {
    actions.children[0].after(button("add", "Add one", () => { drawing.add(); changed(); }));
  }
  host.append(actions);
}

async function startOver() {
  for (const { options, value, set } of sliders) {
    set(value);
    options.change(value);
  }
  drawing.clear();
  state.seed = 0;
  drawing.take(setup.scene);
  drawing.start();
  changed();
}

async function deal(seed) {
  state.seed = seed;
  const found = await engine.ask("deal", { seed, constants: values });
  drawing.take(found.words.scene);
  changed();
}

/* ---- asking ---- */

function view() {
  return { scene: drawing.scene(), resolution: state.resolution, shift: state.shift, constants: { ...values } };
}

function changed(moment = performance.now()) {
  state.version++;
  state.moved ??= moment; // the earliest movement that no picture shows yet
  drawMarks();
  ask();
  clearTimeout(state.rest);
  state.rest = setTimeout(askSlowly, REST);
}

let asking = false;

/** The networks' answers, one request at a time, always for the newest drawing. */
async function ask() {
  if (asking) return;
  asking = true;
  while (state.answered?.version !== state.version) {
    const version = state.version, moved = state.moved;
    state.moved = null;
    const now = view();
    const follows = setup.truth && state.solverTime < FAST;
    const truth = follows ? askTruth(now, version) : null;
    try {
      state.answered = { version, ...(await engine.ask("answer", now)) };
      say("");
    } catch (error) {
      state.answered = { version, fields: {}, words: { refused: {} } };
      say(error.message);
    }
    showAnswers();
    drawMarks(); // the grid may be another
    if (moved !== null) tell(performance.now() - moved);
    await truth;
  }
  asking = false;
}

async function askTruth(now, version) {
  const start = performance.now();
  try {
    const found = await engine.ask("truth", now);
    if (version >= (state.truth?.version ?? 0)) state.truth = { version, ...found };
  } catch (error) {
    state.truth = { version, fields: {}, words: { refused: error.message } };
  }
  state.solverTime = performance.now() - start;
  showTruth();
}

let askingSlowly = false;

/** Truth and doubt, once the person rests. */
async function askSlowly() {
  if (askingSlowly || state.dragging) return;
  askingSlowly = true;
  const version = state.version, now = view();
  if (setup.truth && state.truth?.version !== version) {
    if (state.solverTime >= FAST) markWaiting();
    await askTruth(now, version);
  }
  if (setup.doubt && version === state.version) {
    try {
      state.doubt = { version, ...(await engine.ask("doubt", now)) };
    } catch {
      state.doubt = { version, fields: {} };
    }
    showDoubt();
  }
  askingSlowly = false;
  if (version !== state.version) state.rest = setTimeout(askSlowly, REST);
  document.body.dataset.settled = version;
}

function tell(time) {
  times.push(time);
  if (times.length > 50) times.shift();
  const median = [...times].sort((a, b) => a - b)[times.length >> 1];
  $("speed").textContent = `answers in ${Math.round(median)} ms`;
}

function say(words) {
  $("message").textContent = words;
  $("message").hidden = !words;
}

async function attempt(act) {
  try {
    await act();
  } catch (error) {
    say(error.message);
  }
}

/* ---- showing ---- */

/** Limits of colours: around zero where values have both signs, by more than a ripple. */
function limits(pairs) {
  const low = Math.min(...pairs.map((p) => p[0])), high = Math.max(...pairs.map((p) => p[1]));
  const size = Math.max(-low, high);
  if (Math.min(-low, high) > 0.1 * size) return { low: -size, high: size, map: colours.signed };
  return { low, high, map: -low > high ? colours.size.toReversed() : colours.size };
}

function outputs() {
  const found = Object.entries(state.answered?.fields || {}).filter(([name]) => name !== "input");
  const truth = state.truth?.fields.truth;
  const known = [...found.map(([, field]) => field), ...(truth ? [truth] : [])];
  return known.map((field) => extremes(field, Math.min(state.channel, field.shape[0] - 1)));
}

function put(id, field, range, words) {
  const figure = $(id);
  if (!figure) return;
  const canvas = figure.querySelector(".picture canvas"), gap = figure.querySelector(".picture p");
  figure.classList.remove("waiting");
  gap.hidden = Boolean(field);
  canvas.hidden = !field;
  figure.querySelector("figcaption output").textContent = field ? words || "" : "";
  figure.querySelector(".bar").style.visibility = field ? "visible" : "hidden";
  if (!field) {
    gap.textContent = words || "";
    return;
  }
  paint(canvas, field, Math.min(state.channel, field.shape[0] - 1), range.map, range.low, range.high);
  paintBar(figure.querySelector(".bar"), range.map, range.low, range.high);
}

function show() {
  showAnswers();
  showTruth();
  showDoubt();
}

function showAnswers() {
  const { fields, words } = state.answered || { fields: {}, words: { refused: {} } };
  if (fields.input) {
    const range = limits([extremes(fields.input, 0)]);
    paint($("input"), fields.input, 0, range.map, range.low, range.high);
    paintBar(document.querySelector("#drawing .bar"), range.map, range.low, range.high);
  }
  const pairs = outputs();
  if (!pairs.length) return;
  const range = limits(pairs);
  setup.networks.forEach((_, i) => {
    const strange = words.strange?.[i];
    put(`answer-${i}`, fields[`answer ${i}`], range, words.refused?.[i] || (strange ? "unlike its training" : ""));
    $(`answer-${i}`).title = strange || "";
  });
  if (state.truth?.fields.truth) put("truth", state.truth.fields.truth, range);
  showErrors();
}

function showTruth() {
  if (!setup.truth || !state.truth) return;
  if (!state.truth.fields.truth) {
    put("truth", null, null, state.truth.words.refused);
    setup.networks.forEach((_, i) => put(`error-${i}`, null, null, "Without a truth there is no error."));
    return;
  }
  showAnswers();
}

function percent(share) {
  if (!Number.isFinite(share)) return "–";
  const value = 100 * share;
  return `${value >= 99.5 ? Math.round(value) : value.toPrecision(2)} %`;
}

function grade(figure, share) {
  figure.dataset.grade = share < 0.03 ? "good" : share < 0.15 ? "fair" : "bad";
}

function showErrors() {
  const { answered, truth } = state;
  const fresh = truth?.fields.truth && truth.version === answered?.version;
  setup.networks.forEach((_, i) => {
    const figure = $(`error-${i}`);
    if (!figure) return;
    const answer = answered?.fields[`answer ${i}`];
    if (!fresh || !answer) {
      figure.classList.add("waiting");
      $("truth").classList.toggle("waiting", !fresh);
      return;
    }
    const counts = truth.fields.counts;
    const n = counts ? counts.values.length : 1;
    const off = answer.values.map((v, j) => (counts && !counts.values[j % n] ? 0 : Math.abs(v - truth.fields.truth.values[j])));
    const share = relativeSize(off, truth.fields.truth.values, counts);
    const field = { shape: answer.shape, values: off };
    put(`error-${i}`, field, { low: 0, high: extremes(field, Math.min(state.channel, field.shape[0] - 1))[1], map: colours.size }, percent(share));
    grade(figure, share);
    figure.dataset.share = share;
  });
}

function showDoubt() {
  const { answered, doubt } = state;
  if (!doubt) return;
  setup.networks.forEach((_, i) => {
    const figure = $(`doubt-${i}`);
    if (!figure) return;
    const field = doubt.fields[`doubt ${i}`], answer = answered?.fields[`answer ${i}`];
    if (!field || !answer) return put(`doubt-${i}`, null, null, "");
    const share = relativeSize(field.values, answer.values);
    const high = extremes(field, Math.min(state.channel, field.shape[0] - 1))[1];
    put(`doubt-${i}`, field, { low: 0, high, map: colours.size }, percent(share));
    grade(figure, share);
  });
}

function markWaiting() {
  for (const figure of document.querySelectorAll("#truth, [id^=error], [id^=doubt]")) {
    figure.classList.add("waiting");
  }
}

function drawMarks() {
  const canvas = $("overlay");
  const size = canvas.clientWidth, ratio = devicePixelRatio || 1;
  if (canvas.width !== Math.round(size * ratio)) canvas.width = canvas.height = Math.round(size * ratio);
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, size, size);
  const [y, x] = [0, 1].map(inPicture);
  context.setTransform(ratio * x.scale, 0, 0, ratio * y.scale,
    ratio * size * x.start, ratio * size * (1 - y.scale - y.start));
  drawing.marks(context, size);
}

/** Where coordinates of an axis lie in a picture, whose pixels have the samples in their middles. */
function inPicture(axis) {
  const n = state.answered?.fields.input?.shape[1 + axis] ?? state.resolution;
  const gaps = setup.layouts[axis] === "inclusive" ? n - 1 : n;
  return { scale: gaps / n, start: setup.layouts[axis] === "cell-centred" ? 0 : 0.5 / n };
}

/* ---- watching ---- */

function place(event) {
  const box = $("overlay").getBoundingClientRect();
  const shares = [1 - (event.clientY - box.top) / box.height, (event.clientX - box.left) / box.width];
  const [y, x] = shares.map((share, axis) => (share - inPicture(axis).start) / inPicture(axis).scale);
  return [x, y];
}

function watch() {
  const overlay = $("overlay");
  overlay.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    overlay.setPointerCapture(event.pointerId);
    state.dragging = true;
    attempt(() => { drawing.press(place(event)); changed(event.timeStamp); });
  });
  overlay.addEventListener("pointermove", (event) => {
    if (!state.dragging) {
      overlay.style.cursor = drawing.over(place(event)) ? "grab" : "crosshair";
      return;
    }
    for (const each of event.getCoalescedEvents?.() ?? [event]) drawing.drag(place(each));
    changed(event.timeStamp);
  });
  const end = () => {
    if (!state.dragging) return;
    state.dragging = false;
    drawing.release();
    clearTimeout(state.rest);
    state.rest = setTimeout(askSlowly, 0);
  };
  overlay.addEventListener("pointerup", end);
  overlay.addEventListener("pointercancel", end);
  overlay.addEventListener("keydown", (event) => {
    const step = event.shiftKey ? 0.05 : 0.01;
    const moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] };
    if (!(event.key in moves)) return;
    event.preventDefault();
    drawing.nudge(...moves[event.key]);
    changed(event.timeStamp);
  });
  new ResizeObserver(drawMarks).observe(overlay);
}

function begin() {
  document.title = `${setup.title} · torchcno playground`;
  $("title").textContent = setup.title;
  $("equation").textContent = setup.equation;
  $("hint").textContent = setup.hint;
  $("input-label").textContent = setup.label;
  buildProblems();
  buildTools();
  buildSliders();
  buildAnswers();
  buildLegend();
  drawing.take(setup.scene);
  drawing.start();
  watch();
  changed(null);
}

begin();
