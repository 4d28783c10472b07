// Live updates, filter and keyboard of the page. The page works without it, but does not move.
"use strict";
(() => {
  const body = document.body, base = body.dataset.base;
  const $ = (selector, of = document) => of.querySelector(selector);
  const all = (selector, of = document) => [...of.querySelectorAll(selector)];

  // ---- Updates: the server sends elements with ids, which replace those of the page.

  // morph makes an element like another one and keeps what did not change, and so the focus.
  function morph(from, to) {
    if (from.isEqualNode(to)) return;
    if (from.nodeType !== to.nodeType || from.nodeName !== to.nodeName || from.id !== to.id) {
      from.replaceWith(to);
      return;
    }
    if (from.nodeType !== Node.ELEMENT_NODE) {
      from.nodeValue = to.nodeValue;
      return;
    }
    for (const { name, value } of [...to.attributes]) if (from.getAttribute(name) !== value) from.setAttribute(name, value);
    for (const { name } of [...from.attributes]) if (!to.hasAttribute(name) && !kept(from, name)) from.removeAttribute(name);
    const known = new Map(all(":scope > [id]", from).map((e) => [e.id, e]));
    let at = from.firstChild;
    for (const child of [...to.childNodes]) {
      const same = child.id && known.get(child.id);
      if (same && same !== at) from.insertBefore(same, at);
      const old = same || at;
      if (!old || (!same && old.id && known.has(old.id) && old.id !== child.id)) {
        from.insertBefore(child, at);
        continue;
      }
      at = old.nextSibling;
      morph(old, child);
    }
    while (at) at = drop(at);
  }
  const drop = (node) => { const next = node.nextSibling; node.remove(); return next; };
  // kept are attributes that belong to the reader: what is opened, hidden by a filter, focused.
  const kept = (e, name) => name === "hidden" || name === "tabindex" || (name === "open" && e.nodeName === "DETAILS");

  const renewal = 10000;

  function patch(html) {
    const parsed = new DOMParser().parseFromString(html, "text/html");
    for (const e of [...parsed.body.children]) {
      const old = document.getElementById(e.id);
      if (!old) continue;
      for (const a of all("[data-why][data-done]", old)) {
        const fresh = all("[data-why]", e).find((n) => n.dataset.why === a.dataset.why);
        if (!fresh) continue;
        const shown = a.cloneNode(true); // until there is a newer one
        if (Date.now() - shown.dataset.done > renewal) shown.dataset.due = "";
        fresh.replaceWith(shown);
      }
      morph(old, document.importNode(e, true));
      const now = document.getElementById(e.id);
      if (now && now.classList.contains("n")) flash(now);
    }
    filter();
    answer();
  }
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  function flash(e) {
    if (!still.matches) e.animate([{ outlineColor: "var(--focus)", outlineWidth: "2px", outlineStyle: "solid" }, { outlineColor: "transparent", outlineWidth: "2px", outlineStyle: "solid" }], 900);
  }

  let stream, since = body.dataset.since;
  const sign = $("#live");
  function say(state, text) {
    if (!sign) return;
    sign.dataset.state = state;
    if (sign.lastElementChild.textContent !== text) sign.lastElementChild.textContent = text;
  }
  function follow() {
    if (stream || !("live" in body.dataset)) return;
    stream = new EventSource(`${base}/live?path=${encodeURIComponent(body.dataset.path)}&since=${since}`);
    stream.onopen = () => say("on", "live");
    stream.onerror = () => {
      say("off", "reconnecting");
      if (stream && stream.readyState === EventSource.CLOSED) { stop(); setTimeout(follow, 5000); }
    };
    stream.onmessage = (e) => { since = e.lastEventId || since; patch(e.data); };
    stream.addEventListener("reload", () => location.reload());
  }
  function stop() { if (stream) { stream.close(); stream = undefined; } }
  // A browser has few connections to one server: a page that nobody looks at gives its back.
  document.addEventListener("visibilitychange", () => (document.hidden ? stop() : follow()));
  addEventListener("pagehide", stop);
  addEventListener("pageshow", follow);

  // ---- Answers of why, one at a time. An update of the page renews those that are older than renewal, for which the
  // server keeps them: first those that are missing, then the oldest.

  const next = () => $("[data-why]:not([data-done])") || all("[data-why][data-due]").sort((a, b) => a.dataset.done - b.dataset.done)[0];
  let asking = false;
  async function answer() {
    if (asking) return;
    asking = true;
    for (let p; (p = next()); ) {
      let said;
      try {
        const answer = await fetch(p.dataset.why, { credentials: "same-origin" });
        if (answer.ok) said = await answer.text();
      } catch { /* the server has gone */ }
      if (said) p.textContent = said;
      else if (!p.dataset.done) p.append(" (Why: the answer could not be read.)");
      p.dataset.done = Date.now();
      delete p.dataset.due;
    }
    asking = false;
  }

  // ---- Filter of the heat map.

  const form = $("#filter");
  function filter() {
    if (!form) return;
    const text = form.elements.q.value.trim().toLowerCase();
    const states = all("[data-state][aria-pressed=true]", form).map((b) => b.dataset.state);
    let shown = 0, of = 0;
    for (const n of all(".n")) {
      of++;
      const has = ` ${n.dataset.s} `;
      const match = n.id.includes(text, 2) && states.every((s) => has.includes(` ${s} `));
      if (n.hidden === match) n.hidden = !match;
      if (match) shown++;
    }
    for (const g of all(".group")) {
      const none = !$(".n:not([hidden])", g);
      if (g.hidden !== none) g.hidden = none;
    }
    $("#found").value = text || states.length ? `${shown} of ${of} nodes` : "";
  }
  if (form) {
    form.addEventListener("submit", (e) => e.preventDefault());
    form.addEventListener("input", filter);
    form.addEventListener("click", (e) => {
      const b = e.target.closest("[data-state]");
      if (!b) return;
      b.setAttribute("aria-pressed", b.getAttribute("aria-pressed") !== "true");
      filter();
    });
  }

  // ---- Heat map: one stop of the tab key, arrows move, the line below says what is there.

  const inspector = document.createElement("div");
  inspector.className = "inspector";
  inspector.hidden = true;
  inspector.setAttribute("aria-hidden", "true");
  body.append(inspector);
  const tile = (e) => (e.target instanceof Element ? e.target.closest("a.n") : null);
  function inspect(n) {
    inspector.hidden = !n;
    if (!n) return;
    const cells = $("span", n).cloneNode(true);
    const text = document.createElement("p");
    text.textContent = n.getAttribute("aria-label");
    inspector.replaceChildren(cells, text);
  }
  const maps = all(".map");
  let stops = all("a.n");
  for (const n of stops.slice(1)) n.tabIndex = -1;
  document.addEventListener("focusin", (e) => {
    const n = tile(e);
    if (!n) return inspect(null);
    for (const o of all('a.n:not([tabindex="-1"])')) if (o !== n) o.tabIndex = -1;
    n.tabIndex = 0;
    inspect(n);
  });
  for (const map of maps) {
    map.addEventListener("pointerover", (e) => { const n = tile(e); if (n) inspect(n); });
    map.addEventListener("pointerleave", () => inspect(null));
  }
  function step(n, key) {
    stops = all("a.n:not([hidden])");
    const i = stops.indexOf(n);
    switch (key) {
      case "ArrowLeft": return stops[i - 1];
      case "ArrowRight": return stops[i + 1];
      case "Home": return stops[0];
      case "End": return stops[stops.length - 1];
    }
    const at = n.getBoundingClientRect(), down = key === "ArrowDown";
    const rest = down ? stops.slice(i + 1) : stops.slice(0, Math.max(i, 0)).reverse();
    let best, distance = Infinity, row;
    for (const o of rest) {
      const box = o.getBoundingClientRect();
      if (Math.abs(box.top - at.top) < 2) continue;
      if (row === undefined) row = box.top;
      if (Math.abs(box.top - row) > 2) break;
      const d = Math.abs(box.left - at.left);
      if (d < distance) [best, distance] = [o, d];
    }
    return best;
  }

  // ---- Keyboard.

  const pages = { f: "/", p: "/pending", r: "/rollouts", w: "/fits" };
  let g = 0;
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const n = document.activeElement && document.activeElement.closest("a.n");
    if (n && (e.key.startsWith("Arrow") || e.key === "Home" || e.key === "End")) {
      const next = step(n, e.key);
      e.preventDefault();
      if (next) next.focus();
      return;
    }
    const typing = e.target instanceof Element && e.target.closest("input, textarea, dialog");
    if (e.key === "Escape" && typing && !typing.matches("dialog")) typing.blur();
    if (typing) return;
    if (e.timeStamp - g < 1500 && pages[e.key]) { location.href = base + pages[e.key]; return; }
    g = e.key === "g" ? e.timeStamp : 0;
    switch (e.key) {
      case "?": $("#keys").showModal(); break;
      case "t": theme(); break;
      case "/": {
        const field = $("#filter input, .ask input");
        e.preventDefault();
        if (field) { field.focus(); field.select(); } else location.href = base + "/#filter";
      }
    }
  });

  // ---- Theme, help, copy.

  function theme() {
    const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const now = root.dataset.theme || (dark ? "dark" : "light");
    root.dataset.theme = now === "dark" ? "light" : "dark";
    try { localStorage.setItem("tranche-theme", root.dataset.theme); } catch { /* it holds for this page */ }
  }
  $("#theme").addEventListener("click", theme);
  $("#help").addEventListener("click", () => $("#keys").showModal());
  document.addEventListener("click", async (e) => {
    const b = e.target instanceof Element && e.target.closest("[data-copy]");
    if (!b) return;
    const text = document.getElementById(b.dataset.copy).textContent;
    try { await navigator.clipboard.writeText(text); } catch {
      const range = document.createRange();
      range.selectNodeContents(document.getElementById(b.dataset.copy));
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      return;
    }
    b.textContent = "Copied";
    setTimeout(() => { b.textContent = "Copy"; }, 1500);
  });
  const field = $("#profile");
  if (field && !field.value && location.pathname.endsWith("/fits")) field.focus();

  filter();
  answer();
  follow();
})();
