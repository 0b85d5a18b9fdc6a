"use strict";
/* What a person draws. Places are (x, y) of the unit square, y upwards.

   Every kind has: scene(), take(scene), press(p), drag(p), release(), marks(context, size),
   over(p): whether there is something to grab, and nudge(dx, dy) for the arrow keys. */

const round = (value) => Math.round(value * 1e5) / 1e5;
const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
const distance = (a, b) => Math.hypot(a[0] - b[0], a[1] - b[1]);
const GRAB = 0.045; // how near is on it

class SpotsDrawing {
  constructor(setup) {
    this.most = setup.spots;
    this.materials = setup.materials;
    this.brush = { ring: setup.problem === "poisson", sign: 1, width: 0.05, height: 0.4, erase: false };
    if (this.materials) this.brush.height = 2; // thick enough to cover what is below
    this.strokes = [];
    this.seed = null;
  }

  scene() {
    const of = (ring) => this.strokes.filter((s) => s.ring === ring).flatMap((s) => s.spots);
    const plain = (spots) => spots.map((spot) => spot.map(round));
    return { seed: this.seed, blobs: plain(of(false)), rings: plain(of(true)) };
  }

  take(scene) {
    this.seed = scene.seed;
  }

  clear() {
    this.strokes = [];
    this.seed = null;
  }

  start() {
    if (this.materials) return;
    const { ring, width, height } = this.brush;
    this.strokes = [
      { ring, spots: [[0.32, 0.66, width, height]] },
      { ring, spots: [[0.68, 0.36, width, -height]] },
    ];
  }

  handle(stroke) {
    return stroke.spots[Math.floor(stroke.spots.length / 2)];
  }

  near(p) {
    const found = this.strokes.filter((stroke) => distance(this.handle(stroke), p) < GRAB);
    return found.at(-1) || null;
  }

  over(p) {
    return !this.brush.erase && this.near(p) !== null;
  }

  full() {
    return this.strokes.reduce((n, s) => n + s.spots.length, 0) >= this.most;
  }

  press(p) {
    this.last = p;
    if (this.brush.erase) return this.rub(p);
    this.held = this.near(p);
    this.painting = this.held === null;
    if (!this.painting) return;
    if (this.full()) throw new Error("That is all the paint there is. Erase some, or clear.");
    const { ring, sign, width, height } = this.brush;
    this.held = { ring, spots: [[...p, width, sign * height]] };
    this.strokes.push(this.held);
  }

  drag(p) {
    if (this.brush.erase) return this.rub(p);
    if (!this.painting) {
      for (const spot of this.held.spots) {
        spot[0] = clamp(spot[0] + p[0] - this.last[0], -0.2, 1.2);
        spot[1] = clamp(spot[1] + p[1] - this.last[1], -0.2, 1.2);
      }
      this.last = p;
      return;
    }
    const [, , width, height] = this.held.spots[0];
    while (distance(this.last, p) > 0.9 * width && !this.full()) {
      const share = (0.9 * width) / distance(this.last, p);
      this.last = [0, 1].map((i) => this.last[i] + share * (p[i] - this.last[i]));
      this.held.spots.push([...this.last, width, height]);
    }
  }

  rub(p) {
    const stays = (spot) => distance(spot, p) > Math.max(GRAB, spot[2]);
    for (const stroke of this.strokes) stroke.spots = stroke.spots.filter(stays);
    this.strokes = this.strokes.filter((stroke) => stroke.spots.length);
  }

  release() {}

  nudge(dx, dy) {
    const stroke = this.held || this.strokes.at(-1);
    if (!stroke) return;
    for (const spot of stroke.spots) {
      spot[0] = clamp(spot[0] + dx, -0.2, 1.2);
      spot[1] = clamp(spot[1] + dy, -0.2, 1.2);
    }
  }

  marks(context, size) {
    for (const stroke of this.strokes) ring(context, size, this.handle(stroke), 7);
  }
}

class LayersDrawing {
  constructor(setup, constants) {
    this.constants = constants;
    this.curve = [];
  }

  scene() {
    return { curve: this.curve.map(round) };
  }

  take(scene) {
    this.curve = [...scene.curve];
  }

  clear() {
    this.curve = this.curve.map(() => 0);
  }

  start() {}

  heights(layer) {
    const { centre, offset, delta } = this.constants();
    return this.curve.map((value) => centre + (layer ? offset : -offset) - delta * value);
  }

  over() {
    return true;
  }

  press(p) {
    this.last = p;
  }

  drag(p) {
    this.bend(p[0], p[1] - this.last[1]);
    this.last = p;
  }

  bend(x, dy) {
    const { delta } = this.constants();
    const n = this.curve.length;
    this.curve = this.curve.map((value, j) => {
      const apart = ((j / n - x + 1.5) % 1) - 0.5;
      const moved = value - (dy / delta) * Math.exp(-((apart / 0.07) ** 2) / 2);
      return clamp(moved, -0.45 / delta, 0.45 / delta);
    });
    this.place = x;
  }

  release() {}

  nudge(dx, dy) {
    this.place = (((this.place ?? 0.5) + dx) % 1 + 1) % 1;
    this.bend(this.place, dy);
  }

  marks(context, size) {
    for (const layer of [0, 1]) {
      const heights = this.heights(layer);
      const n = heights.length;
      for (const image of [-1, 0, 1]) {
        trace(context, size, Array.from({ length: n + 3 }, (_, j) =>
          [(j - 1) / n, heights[(j - 1 + n) % n] + image]));
      }
    }
    for (const layer of [0, 1]) {
      for (const j of [4, 12, 20, 28]) {
        const y = (this.heights(layer)[j] % 1 + 1) % 1;
        ring(context, size, [j / this.curve.length, y], 6);
      }
    }
  }
}

class DisksDrawing {
  constructor(setup) {
    this.gaussian = setup.problem === "smooth-transport";
    [this.y, this.x] = setup.extent;
    this.disks = [];
  }

  scene() {
    return { disks: this.disks.map((disk) => disk.map(round)) };
  }

  take(scene) {
    this.disks = scene.disks.map((disk) => [...disk]);
  }

  clear() {
    this.disks = this.disks.slice(0, 1);
  }

  start() {}

  add() {
    if (this.disks.length >= 4) throw new Error("There is room for four.");
    const [, , size] = this.disks[0];
    this.disks.push([0.25 + 0.15 * this.disks.length, 0.25, size]);
  }

  centre(disk) {
    return [(disk[0] - this.x[0]) / (this.x[1] - this.x[0]),
            (disk[1] - this.y[0]) / (this.y[1] - this.y[0])];
  }

  radius(disk) {
    return this.gaussian ? 1.5 * Math.sqrt(disk[2]) : disk[2];
  }

  grabbed(p) {
    for (const disk of this.disks.toReversed()) {
      const apart = distance(this.centre(disk), p);
      if (Math.abs(apart - this.radius(disk)) < 0.03 && apart > 0.03) return { disk, rim: true };
      if (apart < this.radius(disk)) return { disk, rim: false };
    }
    return null;
  }

  over(p) {
    return this.grabbed(p) !== null;
  }

  press(p) {
    this.held = this.grabbed(p) || { disk: this.disks.at(-1), rim: false };
    this.last = p;
  }

  drag(p) {
    const { disk, rim } = this.held;
    if (rim) {
      const radius = clamp(distance(this.centre(disk), p), 0.03, 0.45);
      disk[2] = this.gaussian ? (radius / 1.5) ** 2 : radius;
    } else {
      this.move(disk, p[0] - this.last[0], p[1] - this.last[1]);
    }
    this.last = p;
  }

  move(disk, dx, dy) {
    disk[0] = clamp(disk[0] + dx, 0, 1);
    disk[1] = clamp(disk[1] + dy, 0, 1);
  }

  release() {}

  nudge(dx, dy) {
    this.move((this.held || { disk: this.disks.at(-1) }).disk, dx, dy);
  }

  marks(context, size) {
    for (const disk of this.disks) {
      ring(context, size, this.centre(disk), this.radius(disk) * size);
      ring(context, size, this.centre(disk), 5);
    }
  }
}

class BumpsDrawing {
  constructor(setup) {
    this.psi = [];
    this.held = 0;
    [, [this.left, this.right]] = setup.extent;
  }

  scene() {
    return { psi: this.psi.map(round) };
  }

  take(scene) {
    this.psi = [...scene.psi];
  }

  clear() {
    this.psi = this.psi.map(() => 0.5);
  }

  start() {}

  /** The knob of a bump: its place along the chord, in a band below or above the airfoil. */
  knob(i) {
    const n = this.psi.length / 2;
    const chord = ((i % n) + 1) / (n + 4);
    return { x: (chord - this.left) / (this.right - this.left), low: i < n ? 0.04 : 0.36 };
  }

  at(p) {
    const n = this.psi.length / 2;
    const side = p[1] < 0.25 ? 0 : 1;
    const knobs = Array.from({ length: n }, (_, i) => side * n + i);
    const apart = (i) => Math.abs(this.knob(i).x - p[0]);
    return knobs.reduce((best, i) => (apart(i) < apart(best) ? i : best));
  }

  over() {
    return true;
  }

  press(p) {
    this.side = p[1] < 0.25;
    this.drag(p);
  }

  drag(p) {
    this.held = this.at([p[0], this.side ? 0 : 1]);
    const { low } = this.knob(this.held);
    this.psi[this.held] = clamp((p[1] - low) / 0.14, 0, 1);
  }

  release() {}

  nudge(dx, dy) {
    this.held = clamp(this.held + Math.sign(dx), 0, this.psi.length - 1);
    this.psi[this.held] = clamp(this.psi[this.held] + 5 * dy, 0, 1);
  }

  marks(context, size) {
    this.psi.forEach((value, i) => {
      const { x, low } = this.knob(i);
      trace(context, size, [[x, low], [x, low + 0.14]]);
      ring(context, size, [x, low + 0.14 * value], 6);
    });
  }
}

const DRAWINGS = { spots: SpotsDrawing, layers: LayersDrawing, disks: DisksDrawing, bumps: BumpsDrawing };

/** A mark that is seen on dark and on light ground. */
function outlined(context, draw) {
  for (const [style, width] of [["rgba(0,0,0,.65)", 3.5], ["rgba(255,255,255,.95)", 1.5]]) {
    context.strokeStyle = style;
    context.lineWidth = width;
    context.beginPath();
    draw();
    context.stroke();
  }
}

function ring(context, size, place, radius) {
  const [x, y] = [place[0] * size, (1 - place[1]) * size];
  outlined(context, () => context.arc(x, y, radius, 0, 2 * Math.PI));
}

function trace(context, size, places) {
  const points = places.map(([x, y]) => [x * size, (1 - y) * size]);
  outlined(context, () => {
    context.moveTo(...points[0]);
    for (let i = 1; i < points.length - 1; i++) {
      const [x, y] = points[i];
      const [nextX, nextY] = points[i + 1];
      context.quadraticCurveTo(x, y, (x + nextX) / 2, (y + nextY) / 2);
    }
    context.lineTo(...points.at(-1));
  });
}
