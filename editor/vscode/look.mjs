// Uses the extension in a real VS Code, through a browser, as a person would, and takes pictures:
//
//   node look.mjs URL FOLDER OUT
//
// URL is a VS Code server with the .vsix installed (code-server, or `code serve-web`), FOLDER the folder that it
// opens, with a copy of rules/kda.chunk_forward/cpu_split.kds as `rule.kds`, OUT where the pictures go.
// Needs `playwright-core` from npm and a Chromium (CHROMIUM, or /usr/bin/chromium). The window holds all lines of the
// rule, and user settings hide what is not the extension's: {"breadcrumbs.enabled": false, "git.enabled": false,
// "editor.stickyScroll.enabled": false, "editor.minimap.enabled": false, "workbench.startupEditor": "none"}.
// Exit: 0 all seen, 1 not.

import { chromium } from "playwright-core";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const [url, folder, out] = process.argv.slice(2);
const file = join(folder, "rule.kds");
const original = readFileSync(file, "utf8");
let failed = 0;

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync"],
});
const page = await browser.newPage({ viewport: { width: 1180, height: 740 } });

const sleep = (ms) => page.waitForTimeout(ms);
// The text of the editor, all of which has to fit the window; VS Code draws its lines in any order.
const shown = () => page.evaluate(() => [...document.querySelectorAll(".editor-instance .view-line")]
  .sort((a, b) => parseInt(a.style.top) - parseInt(b.style.top))
  .map((line) => line.textContent.replace(/\u00a0/g, " ")).join("\n"));
const press = (key) => page.keyboard.press(key);

async function until(what, limit = 20000) {
  const end = Date.now() + limit;
  while (Date.now() < end) {
    const found = await what();
    if (found) return found;
    await sleep(100);
  }
  return undefined;
}

async function step(name, action) {
  const start = Date.now();
  let seen, fault = "";
  try {
    seen = await action();
  } catch (error) {
    fault = `: ${error.message.split("\n")[0]}`;
  }
  if (!seen) {
    failed += 1;
    await page.screenshot({ path: join(out, "failed.png") });
  }
  console.log(`${seen ? "seen    " : "NOT SEEN"}  ${name}${fault}${seen ? ` (${Date.now() - start} ms)` : ""}`);
}

const picture = (name, part = ".part.editor") => page.locator(part).first().screenshot({ path: join(out, `${name}.png`) });

// The caret between two characters of a line: Ctrl+G takes `line:column`.
async function go(text, inside = 1) {
  await press("Control+1");
  await press("Control+Home");
  await sleep(300);
  const lines = (await shown()).split("\n");
  const line = lines.findIndex((l) => l.includes(text));
  if (line < 0) throw new Error(`no line with ${text}`);
  await press("Control+g");
  await sleep(300);
  await page.keyboard.type(`${line + 1}:${lines[line].indexOf(text) + 1 + inside}`);
  await press("Enter");
  await sleep(300);
}

async function hover(text, inside, expected, name) {
  await go(text, inside);
  await press("Control+k");
  await press("Control+i");
  const said = await until(async () => {
    const texts = await page.locator(".monaco-hover:not(.hidden)").allInnerTexts();
    return texts.find((t) => expected.every((part) => t.replace(/\u00a0/g, " ").includes(part)));
  });
  await sleep(400);
  await picture(name);
  await press("Escape");
  await press("Escape");
  return said;
}

const problems = async () => (await page.locator("[id='status.problems']").innerText()).replace(/\s+/g, " ").trim();

async function palette(command) {
  await press("F1");
  await sleep(500);
  await page.keyboard.type(command);
  await sleep(900);
  await press("Enter");
  await sleep(500);
}

await page.goto(`${url}/?folder=${folder}`);
await page.waitForSelector(".monaco-workbench", { timeout: 60000 });
await sleep(4000);
await press("Control+p");
await sleep(800);
await page.keyboard.type("rule.kds");
await sleep(1500);
await press("Enter");

await step("the language is kds", () => until(async () =>
  (await page.locator("[id='status.editor.mode']").innerText()).includes("kds")));
await step("the server answers: a lens above the rule", () => until(async () =>
  (await page.locator(".codelens-decoration").allInnerTexts()).some((t) => t.includes("lower for cpu"))));
await step("no findings", () => until(async () => (await problems()) === "0 0"));
await sleep(1500);
await picture("rule");
await step("hover of a clause: its verdict at every choose point", () =>
  hover("stack_bytes <=", 2, ["holds", "proved"], "hover-clause"));
await step("hover of a tensor: shape, dtype, bytes", () =>
  hover("state_next", 2, ["K x V of f32", "262144"], "hover-tensor"));
await step("hover of a rule: its contract", () => hover("cpu_split", 2, ["clause", "verdict"], "hover-rule"));

await step("go to definition: into the operator", async () => {
  await go("state_next", 2);
  await press("F12");
  const opened = await until(async () =>
    (await page.locator(".tabs-container .tab").allInnerTexts()).some((t) => t.includes("kda.chunk_forward.kds")));
  await sleep(800);
  await picture("operator");
  await press("Control+F4");
  await palette("View: Close Editor");
  await sleep(500);
  if (!(await page.locator(".tabs-container .tab").allInnerTexts()).some((t) => t.includes("rule.kds"))) {
    await press("Control+p");
    await sleep(500);
    await page.keyboard.type("rule.kds");
    await sleep(1000);
    await press("Enter");
    await sleep(1000);
  }
  return opened;
});

await step("a misspelt word is a finding as it is typed", async () => {
  await go("chain = split", "chain = split".length);
  await press("Backspace");
  await press("Backspace");
  const found = await until(async () => (await problems()).startsWith("1"));
  await go("chain = spl", "chain = s".length);
  await press("Control+k");
  await press("Control+i");
  await sleep(1500);
  await picture("finding");
  await press("Escape");
  return found;
});
await step("a quick fix mends it", async () => {
  await go("chain = spl", "chain = s".length);
  await press("Control+.");
  await sleep(1500);
  await picture("quick-fix");
  await press("Enter");
  return until(async () => (await shown()).includes("chain = split") && (await problems()) === "0 0");
});
await step("completion offers memories of the language", async () => {
  await go("in stack", "in stack".length);
  for (let i = 0; i < 5; i++) await press("Backspace");
  await page.keyboard.type("st");
  await press("Control+Space");
  const offered = await until(async () =>
    (await page.locator(".suggest-widget .monaco-list-row").allInnerTexts()).some((t) => t.includes("stack")));
  await sleep(500);
  await picture("completion");
  await press("Tab");
  await sleep(500);
  return offered && (await shown()).includes("in stack");
});
await step("rename: every use of a choice", async () => {
  await go("width in", 2);
  await press("F2");
  await sleep(1000);
  await press("Control+a");
  await page.keyboard.type("columns");
  await press("Enter");
  return until(async () => {
    const text = await shown();
    return text.includes("columns in") && text.includes("vector_products(columns)") && !text.includes("width");
  });
});
await step("formatting gives the canonical form", async () => {
  await go("ensure {", "ensure".length);
  await page.keyboard.type("    ");
  await palette("Format Document");
  return until(async () => (await shown()).includes("  ensure {"));
});
await step("a broken text keeps the server alive and is one finding", async () => {
  await go("place {", "place {".length);
  await press("Backspace");
  const found = await until(async () => (await problems()).startsWith("1"));
  await press("Control+z");
  return found && until(async () => (await problems()) === "0 0");
});
await step("the command lowers the rule and shows what `kdsl lower` says", async () => {
  await palette("kds: Lower the rules of this file");
  await sleep(800);
  await press("Control+a");
  await page.keyboard.type("cpu");
  await press("Enter");
  const said = await until(async () => {
    const text = (await page.locator(".panel .view-line").allInnerTexts()).join("\n").replace(/\u00a0/g, " ");
    return text.includes("stack_bytes") && text;
  }, 90000);
  await sleep(800);
  await picture("lower", "body");
  return said;
});

await browser.close();
writeFileSync(file, original);
console.log(failed ? `${failed} not seen` : "all seen");
process.exitCode = failed ? 1 : 0;
