-- Neovim 0.11 and later read this file from the runtime path; `vim.lsp.enable("kds")` turns it on.
return {
  cmd = { "kdsl", "lsp" },
  filetypes = { "kds" },
  root_markers = { "rules", "stdlib", "pyproject.toml", ".git" },
}
