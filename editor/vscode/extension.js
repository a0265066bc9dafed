// The client: starts `kdsl lsp` for `.kds` files and shows what lowering says.
"use strict";

const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;
let report;

async function start() {
  const [command, ...args] = vscode.workspace.getConfiguration("kds").get("command");
  const server = { command, args };
  client = new LanguageClient("kds", "kds", server, {
    documentSelector: [{ language: "kds" }],
    synchronize: { fileEvents: vscode.workspace.createFileSystemWatcher("**/*.kds") },
    middleware: { executeCommand: execute },
  });
  try {
    await client.start();
  } catch (error) {
    const text = `The language server \`${[command, ...args].join(" ")}\` did not start: pip install "kdsl[lsp]", `
      + `or set kds.command. (${error.message})`;
    vscode.window.showErrorMessage(text);
  }
}

// Lowering reads the file from disk, so it is saved first; the answer goes to an output channel.
async function execute(command, args, next) {
  if (command !== "kdsl.lower") return next(command, args);
  const document = vscode.workspace.textDocuments.find((d) => d.uri.toString() === vscode.Uri.parse(args[0]).toString());
  if (document && document.isDirty) await document.save();
  const answer = await next(command, args);
  report.clear();
  report.append(answer.output || `lowering ended with ${answer.status} after ${answer.seconds} s\n`);
  report.show(true);
  return answer;
}

async function lower() {
  const editor = vscode.window.activeTextEditor;
  if (!editor || editor.document.languageId !== "kds") return;
  const target = await vscode.window.showInputBox({ prompt: "target", value: "cpu" });
  if (target) await vscode.commands.executeCommand("kdsl.lower", editor.document.uri.toString(), target);
}

async function activate(context) {
  report = vscode.window.createOutputChannel("kds lower");
  context.subscriptions.push(
    report,
    vscode.commands.registerCommand("kds.lower", lower),
    vscode.commands.registerCommand("kds.restart", async () => {
      if (client) await client.stop();
      await start();
    }),
  );
  await start();
}

async function deactivate() {
  if (client) await client.stop();
}

module.exports = { activate, deactivate };
