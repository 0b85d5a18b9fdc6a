"use strict";
/* Who answers: here the server that sent the page. */

const engine = {
  /** "answer", "truth", "doubt" or "deal" of a view. */
  async ask(what, view) {
    const reply = await fetch(what, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(view),
    });
    if (!reply.ok) {
      const said = await reply.json().catch(() => ({}));
      throw new Error(said.error || `the server said ${reply.status}`);
    }
    return unpack(await reply.arrayBuffer());
  },
};
