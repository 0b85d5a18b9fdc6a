"use strict";
/* Who answers: the network inside this page, by onnxruntime-web, and a solver of matrices. */

const engine = (() => {
  const whole = JSON.parse(document.getElementById("setup").textContent);
  const { unit, draws, grids } = whole.static;
  const trained = whole.resolution;

  function bytes(text) {
    const raw = atob(text), found = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) found[i] = raw.charCodeAt(i);
    return found;
  }

  const floats = (text) => new Float32Array(bytes(text).buffer);

  /** What lies packed in the page. */
  function unzipped(id) {
    const packed = new Blob([bytes(document.getElementById(id).textContent)]);
    return new Response(packed.stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
  }

  async function load() {
    const message = document.getElementById("message");
    message.textContent = "The network is being unpacked …";
    message.hidden = false;
    await new Promise((resolve) => setTimeout(resolve));
    const [loader, binary, network] = await Promise.all(["loader", "binary", "network"].map(unzipped));
    const address = URL.createObjectURL(new Blob([loader], { type: "text/javascript" }));
    const ort = await import(address);
    ort.env.wasm.numThreads = 1;
    ort.env.wasm.wasmBinary = binary;
    const session = await ort.InferenceSession.create(new Uint8Array(network));
    return { ort, session };
  }

  const loaded = load();

  /** A · X · Bᵀ of row-major matrices, A: a × n, X: n × m, B: b × m. */
  function sandwich(A, X, B, n, m) {
    const a = A.length / n, b = B.length / m;
    const left = new Float64Array(a * m), result = new Float64Array(a * b);
    for (let i = 0; i < a; i++) {
      for (let k = 0; k < n; k++) {
        const weight = A[i * n + k];
        for (let j = 0; j < m; j++) left[i * m + j] += weight * X[k * m + j];
      }
    }
    for (let i = 0; i < a; i++) {
      for (let j = 0; j < b; j++) {
        let sum = 0;
        for (let k = 0; k < m; k++) sum += left[i * m + k] * B[j * m + k];
        result[i * b + j] = sum;
      }
    }
    return result;
  }

  const known = {};

  function matrices(n) {
    known[n] ??= Object.fromEntries(Object.entries(grids[n]).map(([name, text]) => [name, floats(text)]));
    return known[n];
  }

  /** The random part: π/K² Σ a_ij (i² + j²)^−r sin(πix) sin(πjy). */
  function series(seed, { K, r }, x, y) {
    const draw = floats(draws[seed % draws.length]);
    const amplitudes = Float64Array.from({ length: K * K }, (_, l) => {
      const i = Math.floor(l / K) + 1, j = (l % K) + 1;
      return (Math.PI / K ** 2) * draw[l] * (i * i + j * j) ** -r;
    });
    const sines = (axis) =>
      Float64Array.from({ length: axis.length * K }, (_, l) =>
        Math.sin(Math.PI * axis[Math.floor(l / K)] * ((l % K) + 1)));
    return sandwich(sines(y), amplitudes, sines(x), K, K);
  }

  /** What is drawn, at the points of the grid. */
  function input(view) {
    const n = view.resolution;
    const axis = Float64Array.from({ length: n }, (_, j) => j / (n - 1));
    const moved = axis.map((x) => x - view.shift / (n - 1));
    const { seed, blobs, rings } = view.scene;
    const field = seed === null ? new Float64Array(n * n) : series(seed, view.constants, moved, axis);
    const add = ([x, y, width, height], shape) => {
      for (let j = 0; j < n; j++) {
        for (let i = 0; i < n; i++) {
          const q = ((moved[i] - x) ** 2 + (axis[j] - y) ** 2) / width ** 2;
          if (q < 80) field[j * n + i] += unit * height * shape(q) * Math.exp(-q / 2);
        }
      }
    };
    for (const spot of blobs) add(spot, () => 1);
    for (const spot of rings) add(spot, (q) => 1 - q / 2);
    return field;
  }

  const plane = (values, n) => ({ shape: [1, n, n], values: Float32Array.from(values) });

  async function answer(field, n) {
    const { ort, session } = await loaded;
    const { down, up } = matrices(n);
    const seen = n === trained ? field : sandwich(down, field, down, n, n);
    const tensor = new ort.Tensor("float32", Float32Array.from(seen), [1, 1, trained, trained]);
    const { output } = await session.run({ input: tensor });
    return n === trained ? output.data : sandwich(up, output.data, up, trained, trained);
  }

  function truth(field, n) {
    const { forward, backward, multiplier } = matrices(n);
    const modes = sandwich(forward, field, forward, n, n).map((value, i) => value * multiplier[i]);
    return sandwich(backward, modes, backward, n - 2, n - 2);
  }

  /** The eight images of a square, each with its own inverse: where value i comes from. */
  function* images(n) {
    for (let g = 0; g < 8; g++) {
      yield Int32Array.from({ length: n * n }, (_, l) => {
        let j = Math.floor(l / n), i = l % n;
        if (g & 4) [i, j] = [j, i];
        if (g & 1) i = n - 1 - i;
        if (g & 2) j = n - 1 - j;
        return j * n + i;
      });
    }
  }

  async function doubt(field, n) {
    const sum = new Float64Array(n * n), squares = new Float64Array(n * n);
    for (const from of images(n)) {
      const found = await answer(Float64Array.from(from, (l) => field[l]), n);
      from.forEach((l, i) => { sum[l] += found[i]; squares[l] += found[i] ** 2; });
      await new Promise((resolve) => setTimeout(resolve)); // for whoever goes on drawing
    }
    return sum.map((s, i) => Math.sqrt(Math.max(0, squares[i] / 8 - (s / 8) ** 2)));
  }

  const makers = {
    answer: async (view, n, field) => ({ input: plane(field, n), "answer 0": plane(await answer(field, n), n) }),
    truth: async (view, n, field) => ({ truth: plane(truth(field, n), n) }),
    doubt: async (view, n, field) => ({ "doubt 0": plane(await doubt(field, n), n) }),
  };

  return {
    async ask(what, view) {
      if (what === "deal") return { fields: {}, words: { scene: { seed: view.seed, blobs: [], rings: [] } } };
      if (view.constants.K > view.resolution - 2) {
        throw new Error(`${view.resolution} points do not resolve ${view.constants.K} modes; use a finer grid.`);
      }
      const fields = await makers[what](view, view.resolution, input(view));
      return { fields, words: { refused: {} } };
    },
  };
})();
