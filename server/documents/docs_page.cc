#include "server/documents/docs_page.h"

namespace onnxd {

std::string_view DocsPagePolicy() {
  return "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src "
         "'self'; form-action 'none'; frame-ancestors 'none'";
}

std::string_view DocsPage() {
  return R"page(<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>onnxd</title>
<style>
body { font: 16px/1.5 sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
section { border-top: 1px solid #ccc; margin-top: 1.5rem; }
textarea { width: 100%; height: 8rem; font: 13px monospace; box-sizing: border-box; }
pre { background: #f4f4f4; padding: .7rem; overflow: auto; max-height: 20rem; }
table { border-collapse: collapse; } td, th { padding: .1rem .8rem .1rem 0; text-align: left; }
.failed { color: #a00; }
</style>
<h1>onnxd</h1>
<p>Each model with an example that runs here. The API: <a href="openapi.json">openapi.json</a>.
<p><label>API key, where one is asked for: <input id="key" type="password" autocomplete="off"></label>
<button id="look">Show models</button>
<p id="state"></p>
<main id="models"></main>
<script>
"use strict";
const byId = id => document.getElementById(id);
const headers = () => byId("key").value ? {"X-API-Key": byId("key").value} : {};
function element(name, text, parent) {
  const made = document.createElement(name);
  made.textContent = text;
  parent.append(made);
  return made;
}
function zeros(shape, zero) {
  if (!shape.length) return zero;
  return Array.from({length: shape[0] < 0 ? 1 : shape[0]}, () => zeros(shape.slice(1), zero));
}
function exampleOf(model) {
  const inputs = {};
  for (const input of model.inputs) {
    inputs[input.name] = zeros(input.shape, input.datatype === "BYTES" ? "" : input.datatype === "BOOL" ? false : 0);
  }
  return JSON.stringify({inputs});
}
function show(model) {
  const section = element("section", "", byId("models"));
  section.dataset.model = model.name;
  element("h2", model.name, section);
  const table = element("table", "", section);
  for (const kind of ["inputs", "outputs"]) {
    for (const tensor of model[kind]) {
      const row = element("tr", "", table);
      for (const text of [kind.slice(0, -1), tensor.name, tensor.datatype, "[" + tensor.shape.join(", ") + "]"]) {
        element("td", text, row);
      }
    }
  }
  const path = "predict/" + encodeURIComponent(model.name);
  element("p", "POST /" + path, section);
  const body = element("textarea", exampleOf(model), section);
  const run = element("button", "Run", section);
  const answer = element("pre", "", section);
  run.onclick = async () => {
    answer.textContent = "...";
    const begin = performance.now();
    try {
      const reply = await fetch(path, {method: "POST", headers: headers(), body: body.value});
      const text = await reply.text();
      answer.className = reply.ok ? "" : "failed";
      answer.textContent = reply.status + " in " + (performance.now() - begin).toFixed(1) + " ms\n" + text;
    } catch (error) {
      answer.className = "failed";
      answer.textContent = String(error);
    }
  };
}
async function load() {
  byId("models").replaceChildren();
  try {
    const reply = await fetch("openapi.json", {headers: headers()});
    const document = await reply.json();
    if (!reply.ok) throw new Error(document.error);
    byId("state").textContent = document["x-models"].length + " models";
    document["x-models"].forEach(show);
  } catch (error) {
    byId("state").textContent = String(error);
  }
}
byId("look").onclick = load;
load();
</script>
</html>
)page";
}

}  // namespace onnxd
