// Reads {name: text} and answers {name: [[start, stop, scope], ...]} by vscode-textmate, as VS Code does.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const [modules, grammarPath] = process.argv.slice(2);
const require = createRequire(modules + "/");
const oniguruma = require("vscode-oniguruma");
const { Registry, parseRawGrammar, INITIAL } = require("vscode-textmate");

await oniguruma.loadWASM(readFileSync(require.resolve("vscode-oniguruma/release/onig.wasm")).buffer);
const registry = new Registry({
  onigLib: Promise.resolve({
    createOnigScanner: (patterns) => new oniguruma.OnigScanner(patterns),
    createOnigString: (text) => new oniguruma.OnigString(text),
  }),
  loadGrammar: async () => parseRawGrammar(readFileSync(grammarPath, "utf8"), grammarPath),
});
const grammar = await registry.loadGrammar("source.kds");
const texts = JSON.parse(readFileSync(0, "utf8"));
const answer = {};
for (const [name, text] of Object.entries(texts)) {
  const spans = [];
  let stack = INITIAL;
  let position = 0;
  for (const line of text.split("\n")) {
    const { tokens, ruleStack } = grammar.tokenizeLine(line, stack);
    for (const token of tokens) {
      const scope = token.scopes[token.scopes.length - 1];
      if (scope !== "source.kds") spans.push([position + token.startIndex, position + token.endIndex, scope]);
    }
    stack = ruleStack;
    position += line.length + 1;
  }
  answer[name] = spans;
}
process.stdout.write(JSON.stringify(answer));
